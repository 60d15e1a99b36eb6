-- Renews leases that their owners still have on this node. See acquire.lua.
-- Numbers: 1 if the lease was renewed, otherwise 0

local answers = { tonumber((time())) }
for i = 1, #KEYS / 2 do
  local holder, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local ours = held(holder, ARGV[3 * i - 1])
  if ours then
    redis.call('PEXPIRE', holder, ARGV[3 * i])
    redis.call('PEXPIRE', counter, FENCE_RETENTION_MS)
  end
  answers[i + 1] = ours and 1 or 0
end
return answers
