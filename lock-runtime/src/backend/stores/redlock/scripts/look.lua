-- Shows the holders of locks on this node. The names are no KEYS, so that a name that this user may not read harms no other
-- name of the call.
-- ARGV: for each lock 1 the name of the holder's key  2 the channel of its releases
-- Answer: for each lock {text of the holder, pttl ms, number of clients that wait or -1}, nil if the lock is free, or the
-- text of an error behind a "-"

local answers = {}
for i = 1, #ARGV / 2 do
  -- A value of another program may be large. Its beginning is no identity by which it could be freed.
  local text = redis.pcall('GETRANGE', ARGV[2 * i - 1], 0, 1023)
  if type(text) == 'table' and not string.find(text.err, 'WRONGTYPE', 1, true) then
    text = redis.pcall('GET', ARGV[2 * i - 1]) -- without the right to use GETRANGE
  end
  text = text ~= '' and text
  if type(text) == 'table' then
    answers[i] = '-' .. text.err
  elseif text then
    local waiting = redis.pcall('PUBSUB', 'NUMSUB', ARGV[2 * i])
    answers[i] = { text, redis.call('PTTL', ARGV[2 * i - 1]), waiting[2] or -1 }
  else
    answers[i] = false
  end
end
return answers
