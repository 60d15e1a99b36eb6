-- Renews leases that their owners still have on this node. A lost counter is raised, except when the server is out of
-- memory, so that a majority knows the fence again after the loss of a node's data. See acquire.lua.
-- Numbers: 1 if the lease was renewed, otherwise 0

return each({ tonumber((time())) }, #KEYS / 2, function(i)
  local holder, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local ours = held(holder, ARGV[3 * i - 1])
  if ours then
    redis.call('PEXPIRE', holder, ARGV[3 * i])
    if last_of(counter) < tonumber(ARGV[3 * i + 1]) then
      redis.pcall('SET', counter, ARGV[3 * i + 1], 'PX', FENCE_RETENTION_MS)
    else
      redis.call('PEXPIRE', counter, FENCE_RETENTION_MS)
    end
  end
  return ours and 1 or 0
end)
