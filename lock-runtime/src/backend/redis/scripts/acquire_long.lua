local owner, ttl, mode = ARGV[1], ARGV[2], ARGV[3]
local holder = redis.call('GET', KEYS[1])

-- Asked twice, or granted by a push that was lost: the same fence again.
if holder and string.sub(holder, 1, #owner + 1) == owner .. ':' then
  redis.call('PEXPIRE', KEYS[1], ttl)
  return { 'granted', string.sub(holder, #owner + 2), redis.call('EXISTS', KEYS[2]) }
end

-- How many stand before us; nothing, if we do not stand there.
local rank = mode == 'poll' and redis.call('LPOS', KEYS[2], owner)
if mode == 'poll' and not rank then return { 'gone' } end

if not holder then
  local first = head(owner)
  if not first or first.owner == owner then
    if first then pop() end
    local fence = mint()
    redis.call('SET', KEYS[1], owner .. ':' .. fence, 'PX', ttl)
    return { 'granted', fence, redis.call('EXISTS', KEYS[2]) }
  end
  hand_over() -- somebody else is first
  rank = rank and redis.call('LPOS', KEYS[2], owner)
end
if mode == 'try' then return { 'held', redis.call('PTTL', KEYS[1]) } end

local is_new = redis.call('HSET', KEYS[3], owner, ttl .. ' ' .. now_text .. ' ' .. ARGV[4]) == 1
if mode == 'join' then
  -- A token has one place, however often it asks.
  rank = not is_new and redis.call('LPOS', KEYS[2], owner)
  is_new = not rank
  if is_new then rank = redis.call('RPUSH', KEYS[2], owner) - 1 end
end
-- They outlast the last place that is not stale; to look costs less than to prolong both each time.
if redis.call('PTTL', KEYS[2]) < STALE_MS then
  redis.call('PEXPIRE', KEYS[2], RETENTION_MS)
  redis.call('PEXPIRE', KEYS[3], RETENTION_MS)
end

-- The fence of a holder that is one of ours; its last 17 characters at most, so that a long way is not searched.
local seen = holder and string.sub(holder, 1, 2) == '1:' and string.match(holder, ':(%d+)$', -17)
if is_new and rank == 0 and seen then
  -- Tells the holder's process that others wait, so that it does not pass the lock on among its own tasks for ever.
  -- Who comes later need not: whoever was granted a lock was told whether others were left in the queue.
  local inbox_id = string.match(holder, '^[^:]*:[^:]*:(%x+):%x+:%d+$')
  local inbox = string.match(ARGV[4], '^%d+ (.*)$')
  -- Of a value that only looks like ours the channel may be forbidden.
  if inbox_id then
    redis.pcall('PUBLISH', string.sub(inbox, 1, -1 - #inbox_id) .. inbox_id, 'contended ' .. seen .. ' ' .. KEYS[1])
  end
end
-- Every grant of this lock before now has a fence that is not larger than this one. Where the holder's does not tell,
-- the counter does; without a counter, for example after a loss of all data, no push of before may count.
seen = seen or redis.call('GET', KEYS[4]) or now_text
-- Only the first in the queue minds when the lease runs out, and who looks a last time before it gives up.
local pttl = (rank == 0 or mode == 'poll') and redis.call('PTTL', KEYS[1]) or -1
-- A place whose other half was evicted has no rank; the next look finds it gone.
return { 'waiting', seen, rank or 0, pttl }
