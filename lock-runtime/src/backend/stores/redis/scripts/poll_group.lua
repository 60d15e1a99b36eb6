-- Refreshes places in the queues of many locks under one prefix, as acquire_short.lua refreshes one place.
-- KEYS: 1 fence  then for each lock its holder, queue, places
-- ARGV: 1 limit us  then for each lock owner, ttl ms, "<number> <inbox>"
-- Answer: for each lock the answer to a "poll", or an error as in each.lua

local keys = KEYS
counter = keys[1]
return each({}, (#keys - 1) / 3, function(i)
  key, queue, places = keys[3 * i - 1], keys[3 * i], keys[3 * i + 1]
  local holder = redis.call('GET', key)
  return ask(holder, ARGV[3 * i - 1], ARGV[3 * i], ARGV[1], 'poll', ARGV[3 * i + 1])
end)
