-- Ends many holds of one prefix, those that nobody waits for.
-- KEYS: the holders
-- ARGV: 1 prefix  2 format  then for each "<owner>:<fence>"
-- Answer: for each 1 (released), or 0 (the way through the queue must be taken)
-- Apart from acquisitions, because it must go on when the server is out of memory.

local before, after, own_tag = ARGV[1] .. '{', '}:~' .. ARGV[2] .. ':queue', ':~' .. ARGV[2] .. ':queue'
local answers = {}
for i = 1, #KEYS do
  local holder = KEYS[i]
  local queue = string.find(holder, '{', 1, true) and holder .. own_tag or before .. holder .. after
  answers[i] = 0
  if redis.pcall('GET', holder) == ARGV[i + 2] and redis.call('EXISTS', queue) == 0 then
    redis.call('DEL', holder)
    answers[i] = 1
  end
end
return answers
