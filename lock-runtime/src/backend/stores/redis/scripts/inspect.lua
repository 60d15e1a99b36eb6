-- Shows who holds a lock and who waits for it; changes nothing.
-- KEYS: 1 fence  2 queues  3 holder  4 queue  5 places  6 open; see grant.lua
-- ARGV: 1 upper bound on the waiters that are shown
-- Answer: {pttl, the holder as in shown.lua, the signature of each waiter, …}; {"-2", ""} and the waiters if there is no
-- holder. A place that is no longer refreshed is not shown.

--@ grant.lua
--@ shown.lua

local holder = redis.call('GET', key)
local answers = { '-2', '' }
if holder then answers = { string.format('%.0f', redis.call('PTTL', key)), shown(holder) } end
for _, entry in ipairs(redis.call('LRANGE', queue, '0', ARGV[1] - 1)) do
  local owner, ttl, refreshed = parts(entry)
  if ttl and now - refreshed < STALE_MS * 1000 then
    answers[#answers + 1] = string.match(owner, '^1%l:([%w,@%%/._-]*):') or ''
  end
end
return answers
