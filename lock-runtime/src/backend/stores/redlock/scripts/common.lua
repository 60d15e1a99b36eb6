-- The server's time, us, as text.
local function time()
  local t = redis.call('TIME')
  return t[1] .. string.sub('00000' .. t[2], -6)
end

-- The fence with which `owner` holds the lock, as text, and the rest of the holder's text; nil if `owner` does not hold
-- the lock, as when the key has another type by now.
local function held(holder, owner)
  local present = redis.pcall('GET', holder)
  if type(present) == 'table' then
    if not string.find(present.err, 'WRONGTYPE', 1, true) then error(present.err, 0) end
    present = nil
  end
  if present and string.sub(present, 1, #owner + 1) == owner .. ':' then
    return string.match(present, '^(%d+)(.*)$', #owner + 2)
  end
  local refusal = replica_error(holder, owner)
  if refusal then error(refusal) end
end

-- Whether the holder whose text has this rest is revoked.
local function is_revoked(rest)
  return string.sub(rest, -#REVOKED) == REVOKED
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

-- A fence above these two, as text.
local function above(fence, other)
  return string.format('%.0f', math.min(math.max(tonumber(fence), tonumber(other)) + 1, LAST_FENCE))
end

-- The channel on which releases are announced.
local function channel(counter)
  return string.sub(counter, 1, -1 - #'fence') .. 'released'
end
