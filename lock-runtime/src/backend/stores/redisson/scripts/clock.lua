-- Keeps the counter of a lock that is held.
local function keep(counter)
  redis.call('PEXPIRE', counter, FENCE_RETENTION_MS)
end
