-- Ends those of many holds of one prefix that have no waiters.
-- KEYS: the holders
-- ARGV: 1 prefix  then for each "<owner>:<fence>"
-- Answer: the numbers (from 1) of those that were not released, and must be released alone
-- Separate from acquisitions, because releases must go on when the server is out of memory.

local queues, waited_for = queues_of(1)
local values = redis.call('MGET', unpack(KEYS)) -- a key of another type has no value
local ours, answers = {}, {}
for i = 1, #KEYS do
  if values[i] == ARGV[i + 1] and not (waited_for and redis.call('EXISTS', queues[i]) == 1) then
    ours[#ours + 1] = KEYS[i]
  else
    answers[#answers + 1] = i
  end
end
if ours[1] then redis.call('DEL', unpack(ours)) end
return answers
