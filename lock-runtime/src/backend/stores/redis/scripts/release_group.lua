-- Ends each of many holds under one prefix whose lock has no waiters.
-- KEYS: 1 fence  2… the holders
-- ARGV: 1 prefix  then for each "<owner>:<fence>"
-- Answer: the numbers (from 1) of the holds that were not released, and must be released alone
-- Releases are separate from acquisitions, because they must go on when the server is out of memory.

local queues = queues_of()
local values = redis.call('MGET', unpack(KEYS, 2)) -- a key of another type has no value
local ours, answers = {}, {}
for i = 2, #KEYS do
  if values[i - 1] == ARGV[i] and not (queues and redis.call('EXISTS', queues[i]) == 1) then
    ours[#ours + 1] = KEYS[i]
  else
    answers[#answers + 1] = i - 1
  end
end
if ours[1] then redis.call('DEL', unpack(ours)) end
return answers
