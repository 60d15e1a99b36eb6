-- Renews many leases; only those that still have this owner and this fence.
-- KEYS: the holders.  ARGV: for each "<owner>:<fence>" and its ttl in ms.
-- Answer: for each 1 (renewed) or 0 (not ours any more)

local answers = {}
for i = 1, #KEYS do
  -- A key of another type is not ours, and must not stop the others.
  local value = redis.pcall('GET', KEYS[i])
  if value == ARGV[2 * i - 1] then
    redis.call('PEXPIRE', KEYS[i], ARGV[2 * i])
    answers[i] = 1
  else
    answers[i] = 0
  end
end
return answers
