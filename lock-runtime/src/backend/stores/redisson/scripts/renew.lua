-- Renews the leases of locks that their owners still hold. See acquire.lua.
-- Numbers: 1 if the lease was renewed, otherwise 0

local answers = { tonumber((time())) }
for i = 1, #KEYS / 2 do
  local name, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local ours = held(name, ARGV[3 * i - 1])
  if ours then
    redis.call('PEXPIRE', name, ARGV[3 * i])
    keep(counter)
  end
  answers[i + 1] = ours and 1 or 0
end
return answers
