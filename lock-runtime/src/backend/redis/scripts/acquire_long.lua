local owner, ttl, mode = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local holder = redis.call('GET', KEYS[1])

-- Asked twice, or granted by a push that was lost: the same fence again.
if holder and string.sub(holder, 1, #owner + 1) == owner .. ':' then
  redis.call('PEXPIRE', KEYS[1], ttl)
  return { 'granted', string.sub(holder, #owner + 2), redis.call('EXISTS', KEYS[2]) }
end

local queued = mode ~= 'try' and redis.call('ZSCORE', KEYS[2], owner)
if mode == 'poll' and not queued then return { 'gone' } end

local now = now_us()
if not holder then
  local first = head(now, owner)
  if not first or first.owner == owner then
    if queued then drop(owner) end
    local fence = mint(now)
    redis.call('SET', KEYS[1], owner .. ':' .. fence, 'PX', ttl)
    return { 'granted', fence, redis.call('EXISTS', KEYS[2]) }
  end
  hand_over(now) -- somebody else is first
end
if mode == 'try' then return { 'held', redis.call('PTTL', KEYS[1]) } end

if not queued then
  local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', KEYS[2], text(math.max(now, last and tonumber(last) + 1 or 0)), owner)
end
redis.call('HSET', KEYS[3], owner, ttl .. ' ' .. text(now) .. ' ' .. ARGV[4])
redis.call('PEXPIRE', KEYS[2], RETENTION_MS)
redis.call('PEXPIRE', KEYS[3], RETENTION_MS)
if not queued then
  -- Tells the holder's process that others wait, so that it does not pass the lock on among its own tasks for ever.
  -- Of a value that only looks like ours the channel may be forbidden.
  local inbox_id, held = string.match(holder or '', '^[^:]*:[^:]*:(%x+):%x+:(%d+)$')
  if inbox_id then
    local inbox = string.match(ARGV[4], '^%d+ (.*)$')
    redis.pcall('PUBLISH', string.sub(inbox, 1, -1 - #inbox_id) .. inbox_id, 'contended ' .. held .. ' ' .. KEYS[1])
  end
end
-- Without a counter, for example after a loss of all data, no push of before may count: seen is now.
local seen = redis.call('GET', KEYS[4]) or text(now)
-- A place whose other half was evicted has no rank; the next look finds it gone.
local rank = redis.call('ZRANK', KEYS[2], owner) or 0
return { 'waiting', seen, rank, redis.call('PTTL', KEYS[1]) }
