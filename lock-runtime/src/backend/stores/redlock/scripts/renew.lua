-- Renews leases that their owners still have on this node. The counter is raised where it was lost, except when the server
-- is out of memory, so that a majority knows the fence again after the loss of a node's data. See acquire.lua.
-- Numbers: 1 if the lease was renewed, otherwise 0

local answers = { tonumber((time())) }
for i = 1, #KEYS / 2 do
  local holder, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local ours = held(holder, ARGV[3 * i - 1])
  if ours then
    redis.call('PEXPIRE', holder, ARGV[3 * i])
    local last = tonumber(redis.call('GET', counter) or 0) or 0
    if last < tonumber(ARGV[3 * i + 1]) then
      redis.pcall('SET', counter, ARGV[3 * i + 1], 'PX', FENCE_RETENTION_MS)
    else
      redis.call('PEXPIRE', counter, FENCE_RETENTION_MS)
    end
  end
  answers[i + 1] = ours and 1 or 0
end
return answers
