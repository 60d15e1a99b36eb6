-- Renews leases that their owners still have on this node. A lost counter is raised, except when the server is out of
-- memory, so that a majority knows the fence again after the loss of a node's data. See acquire.lua.
-- Numbers: 1 if the lease was renewed, 0 if the owner does not have it, -1 if it is revoked

return each({ tonumber((time())) }, #KEYS / 2, function(i)
  local holder, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local ours, rest = held(holder, ARGV[4 * i - 2])
  if ours and is_revoked(rest) then return -1 end
  if ours then
    redis.call('PEXPIRE', holder, ARGV[4 * i - 1])
    if last_of(counter) < tonumber(ARGV[4 * i]) then
      redis.pcall('SET', counter, ARGV[4 * i], 'PX', FENCE_RETENTION_MS)
    else
      redis.call('PEXPIRE', counter, FENCE_RETENTION_MS)
    end
  end
  return ours and 1 or 0
end)
