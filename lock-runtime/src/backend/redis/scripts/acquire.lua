-- Takes the lock, or takes or refreshes a place in its queue.
-- ARGV: 1 owner  2 ttl ms  3 "try" (never queues) | "join" | "poll" (refreshes, never queues anew)
--       4 "<number> <inbox>"  5 stale ms  6 claim window ms  7 retention of the queue ms
-- Answer: {"granted", fence} | {"waiting", seen fence, rank, pttl} | {"held", pttl} | {"gone"}

local owner, ttl, mode = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local stale_ms, window_ms = tonumber(ARGV[5]), tonumber(ARGV[6])
local holder = redis.call('GET', KEYS[1])

-- Asked twice, or granted by a push that was lost: the same fence again.
local fence = fence_of(holder, owner)
if fence then
  redis.call('PEXPIRE', KEYS[1], ttl)
  return { 'granted', fence }
end

local queued = mode ~= 'try' and redis.call('ZSCORE', KEYS[2], owner)
if mode == 'poll' and not queued then return { 'gone' } end

local now = now_us()
if not holder then
  local first = head(now, stale_ms, owner)
  if not first or first.owner == owner then
    if queued then drop(owner) end
    fence = mint(now)
    redis.call('SET', KEYS[1], owner .. ':' .. fence, 'PX', ttl)
    return { 'granted', fence }
  end
  hand_over(now, stale_ms, window_ms) -- somebody else is first
end
if mode == 'try' then return { 'held', redis.call('PTTL', KEYS[1]) } end

if not queued then
  local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', KEYS[2], text(math.max(now, last and tonumber(last) + 1 or 0)), owner)
end
redis.call('HSET', KEYS[3], owner, ttl .. ' ' .. text(now) .. ' ' .. ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[7])
redis.call('PEXPIRE', KEYS[3], ARGV[7])
-- Without a counter, for example after a loss of all data, no push of before may count: seen is now.
local seen = redis.call('GET', KEYS[4]) or text(now)
return { 'waiting', seen, redis.call('ZRANK', KEYS[2], owner), redis.call('PTTL', KEYS[1]) }
