-- The server's time, us, as text.
local function time()
  local t = redis.call('TIME')
  return t[1] .. string.sub('00000' .. t[2], -6)
end

-- The fence with which `owner` holds the lock, as text; nil if it does not.
local function held(holder, owner)
  local present = redis.call('GET', holder)
  return present and string.sub(present, 1, #owner + 1) == owner .. ':' and string.sub(present, #owner + 2) or nil
end

-- Sets a counter to a fence, unless it is larger.
local function raise(counter, fence)
  local last = redis.call('GET', counter)
  if tonumber(last) and tonumber(last) > tonumber(fence) then fence = last end
  redis.call('SET', counter, fence, 'PX', FENCE_RETENTION_MS)
end

-- The channel on which releases are announced.
local function channel(counter)
  return string.sub(counter, 1, -1 - #'fence') .. 'released'
end
