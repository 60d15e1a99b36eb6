-- Renews many leases of one length, except those whose owner and fence are no longer in the holder's key, and those that
-- were revoked.
-- KEYS: the holders.  ARGV: 1 ttl ms  then for each ":<token>:<fence>", the end of the holder's value
-- Answer: the numbers (from 1) of the leases that were not renewed, each negative if the lease is ours, but was revoked

local values, ttl = redis.call('MGET', unpack(KEYS)), ARGV[1] -- a key of another type has no value
local answers = {}
for i = 1, #KEYS do
  local value, ours = values[i], ARGV[i + 1]
  if value and string.sub(value, -#ours) == ours then
    redis.call('PEXPIRE', KEYS[i], ttl)
  else
    local is_revoked = value and string.sub(value, -#ours - 1) == ours .. '!'
    answers[#answers + 1] = is_revoked and -i or i
  end
end
local first = answers[1] and math.abs(answers[1])
return first and replica_error(KEYS[first], ARGV[first + 1]) or answers
