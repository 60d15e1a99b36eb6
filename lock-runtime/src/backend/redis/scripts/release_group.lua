-- Ends many holds of one prefix, those that nobody waits for.
-- KEYS: the holders
-- ARGV: 1 prefix  2 format  then the owner of each
-- Answer: for each 1 (released), or 0 where the way through the queue must be taken
-- Apart from acquisitions, because it must go on when the server is out of memory.

local answers = {}
for i = 1, #KEYS do
  local holder, owner = KEYS[i], ARGV[i + 2]
  local base = string.find(holder, '{', 1, true) and holder or ARGV[1] .. '{' .. holder .. '}'
  local value = redis.pcall('GET', holder)
  answers[i] = 0
  if type(value) == 'string' and string.sub(value, 1, #owner + 1) == owner .. ':'
    and redis.call('EXISTS', base .. ':~' .. ARGV[2] .. ':queue') == 0
  then
    redis.call('DEL', holder)
    answers[i] = 1
  end
end
return answers
