-- The server's time, us, as text.
local function time()
  local t = redis.call('TIME')
  return t[1] .. string.sub('00000' .. t[2], -6)
end

-- The channel of a lock's releases. A brace anywhere in the name takes the place of the hash tag, as in Redisson.
local function channel(name)
  if string.find(name, '{', 1, true) then return 'redisson_lock__channel:' .. name end
  return 'redisson_lock__channel:{' .. name .. '}'
end

-- Whether `owner` holds the lock. Nothing but owners are in the hash, and one at most.
local function held(name, owner)
  return redis.call('HEXISTS', name, owner) == 1
end
