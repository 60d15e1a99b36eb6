-- Renews many leases of one length, except those whose owner and fence are no longer in the holder's key.
-- KEYS: the holders.  ARGV: 1 ttl ms  then for each ":<token>:<fence>", the end of the holder's value
-- Answer: the numbers (from 1) of the leases that are no longer ours

local values, ttl = redis.call('MGET', unpack(KEYS)), ARGV[1] -- a key of another type has no value
local answers = {}
for i = 1, #KEYS do
  local value, ours = values[i], ARGV[i + 1]
  if value and string.sub(value, -#ours) == ours then
    redis.call('PEXPIRE', KEYS[i], ttl)
  else
    answers[#answers + 1] = i
  end
end
local lost = answers[1]
return lost and replica_error(KEYS[lost], ARGV[lost + 1]) or answers
