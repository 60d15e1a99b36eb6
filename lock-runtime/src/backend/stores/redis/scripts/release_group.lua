-- Ends many holds of one domain, except those that are no longer ours and those whose locks have waiters.
-- KEYS: 1 queues  then the holders, then their queues
-- ARGV: for each ":<token>:<fence>", the end of the holder's value
-- Answer: the numbers (from 1) of the holds that were not released, and must be released alone, as one that was revoked
-- Releases are separate from acquisitions, because they must go on when the server is out of memory.

local keys, ends = KEYS, ARGV
local count = #ends
local has_queues = redis.call('EXISTS', keys[1]) == 1 and redis.call('EXISTS', unpack(keys, count + 2)) ~= 0
local held = redis.call('MGET', unpack(keys, 2, count + 1)) -- a key of another type has no value
local ours, answers = { unpack(keys, 2, count + 1) }, {}
for i = count, 1, -1 do
  local is_ours = held[i] and string.sub(held[i], -#ends[i]) == ends[i]
  if not is_ours or has_queues and redis.call('EXISTS', keys[count + 1 + i]) == 1 then
    table.remove(ours, i)
    table.insert(answers, 1, i)
  end
end
if ours[1] then redis.call('DEL', unpack(ours)) end
return answers
