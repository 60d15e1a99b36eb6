-- The server's time, us, as text.
local function time()
  local t = redis.call('TIME')
  return t[1] .. string.sub('00000' .. t[2], -6)
end

-- The channel of a lock's releases. As in Redisson, a brace anywhere in the name takes the place of the hash tag.
local function channel(name)
  if string.find(name, '{', 1, true) then return 'redisson_lock__channel:' .. name end
  return 'redisson_lock__channel:{' .. name .. '}'
end

-- Whether `owner` holds the lock; false when the key has another type by now. The hash has one owner at most.
local function held(name, owner)
  local present = redis.pcall('HEXISTS', name, owner)
  if type(present) == 'table' then
    if not string.find(present.err, 'WRONGTYPE', 1, true) then error(present.err, 0) end
    present = 0
  end
  if present == 1 then return true end
  local refusal = replica_error(name, owner)
  if refusal then error(refusal) end
  return false
end

-- The rest of a lease, ms; the rest of a foreign lease is cut to a number that an answer can carry exactly.
local function left(name)
  return math.min(redis.call('PTTL', name), 2 ^ 50)
end
