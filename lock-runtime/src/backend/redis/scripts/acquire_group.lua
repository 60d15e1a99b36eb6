-- Takes many locks of one prefix, those that are free and that nobody waits for.
-- KEYS: 1 fence  2… the holders
-- ARGV: 1 prefix  2 what the owners begin with  then for each lock the rest of its owner, ttl ms
-- Answer: {fence, …}: the fence of all that were granted, then the numbers of those that were not (from 1; the way
-- through the queue must be taken)
-- One fence serves all: fences are compared between grants of the same lock only.

local t = redis.call('TIME')
local fence = t[1] .. string.format('%06d', t[2])
local last = redis.call('SET', KEYS[1], fence, 'GET')
if last and tonumber(last) >= tonumber(fence) then
  fence = string.format('%.0f', tonumber(last) + 1)
  redis.call('SET', KEYS[1], fence)
end

local process, suffix = ARGV[2], ':' .. fence
local queues, waited_for = queues_of(2)
local answers = { fence }
for i = 2, #KEYS do
  -- What fails here fails again on the other way, which says why.
  local set = not (waited_for and redis.call('EXISTS', queues[i - 1]) == 1)
    and redis.pcall('SET', KEYS[i], process .. ARGV[2 * i - 1] .. suffix, 'NX', 'PX', ARGV[2 * i])
  if not (set and set.ok) then answers[#answers + 1] = i - 1 end
end
return answers
