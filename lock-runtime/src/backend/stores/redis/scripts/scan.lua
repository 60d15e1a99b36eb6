-- Shows the holders of many locks; changes nothing.
-- KEYS: the holders.  ARGV: 1 the index of the last byte to read of each value
-- Answer: for each "<pttl> <the holder as in shown.lua>"; empty if there is no lock
-- The keys may be data of other programs, so only the beginning of each value is read: a long value that was read as a
-- whole would hold up the server.

--@ shown.lua

local answers = {}
for i, key in ipairs(KEYS) do
  local value, answer = redis.pcall('GETRANGE', key, '0', ARGV[1]), ''
  if type(value) == 'string' then
    local pttl = redis.call('PTTL', key)
    if pttl ~= -2 then answer = string.format('%.0f ', pttl) .. shown(value) end
  elseif not string.find(value.err, 'WRONGTYPE', 1, true) then
    return value
  end
  answers[i] = answer
end
return answers
