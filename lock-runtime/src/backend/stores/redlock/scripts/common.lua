-- The server's time, us, as text.
local function time()
  local t = redis.call('TIME')
  return t[1] .. string.sub('00000' .. t[2], -6)
end

-- The fence with which `owner` holds the lock, as text; nil if `owner` does not hold it, as when the key has another
-- type by now.
local function held(holder, owner)
  local present = redis.pcall('GET', holder)
  if type(present) == 'table' then
    if not string.find(present.err, 'WRONGTYPE', 1, true) then error(present.err, 0) end
    present = nil
  end
  if present and string.sub(present, 1, #owner + 1) == owner .. ':' then return string.sub(present, #owner + 2) end
  local refusal = replica_error(holder, owner)
  if refusal then error(refusal) end
end

-- The rest of a lease, ms; the rest of a foreign lease is cut to a number that an answer can carry exactly.
local function left(holder)
  return math.min(redis.call('PTTL', holder), 2 ^ 50)
end

-- The last fence of a counter; 0 without a counter, or if its value is no number.
local function last_of(counter)
  return tonumber(string.match(redis.call('GET', counter) or '', '^%d+$') or 0)
end

-- Sets a counter to a fence, unless the counter is larger, and extends its expiry.
local function raise(counter, fence)
  if last_of(counter) > tonumber(fence) then
    redis.call('PEXPIRE', counter, FENCE_RETENTION_MS)
  else
    redis.call('SET', counter, fence, 'PX', FENCE_RETENTION_MS)
  end
end

-- The channel on which releases are announced.
local function channel(counter)
  return string.sub(counter, 1, -1 - #'fence') .. 'released'
end
