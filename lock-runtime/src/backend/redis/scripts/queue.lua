-- What a lock has on the server. Every script but `renew` takes these keys.
-- KEYS: 1 holder  string "<owner>:<fence>"
--       2 queue   zset   owner -> ticket
--       3 places  hash   owner -> "<ttl ms> <refreshed us> <number> <inbox>"
--       4 fence   string the last fence that was minted, us
--
-- This part stands between the short way of a script, for a lock that nobody waits for, and its long way: the
-- functions cost as much to define as the short way costs to run. Above it stand the constants
-- STALE_MS, CLAIM_WINDOW_MS and RETENTION_MS.

local function now_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2] -- below 2^53 until the year 2255
end

local function text(n)
  return string.format('%.0f', n)
end

-- A hybrid clock: the server's time, or one more than the last, whichever is larger.
local function mint(now)
  local fence = text(now)
  local last = tonumber(redis.call('SET', KEYS[4], fence, 'GET') or '0')
  if last >= now then
    fence = text(last + 1)
    redis.call('SET', KEYS[4], fence)
  end
  return fence
end

local function drop(owner)
  redis.call('ZREM', KEYS[2], owner)
  redis.call('HDEL', KEYS[3], owner)
end

-- The first place that is live, or is `me`; stale ones on the way are removed.
local function head(now, me)
  while true do
    local first = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
    if not first then return nil end
    local place = redis.call('HGET', KEYS[3], first)
    local ttl, refreshed, number, inbox = string.match(place or '', '^(%d+) (%d+) (%d+) (.*)$')
    if ttl then
      local age_ms = math.max(0, math.floor((now - tonumber(refreshed)) / 1000))
      if first == me or age_ms < STALE_MS then
        return { owner = first, ttl = tonumber(ttl), age_ms = age_ms, inbox = inbox, number = number }
      end
    end
    drop(first)
  end
end

-- Makes the first live place the holder and tells its process. Precondition: the holder key does not exist.
-- The lease is short, the age of the place and the claim window: a grant that nobody claims ends soon.
-- The message, "granted <number> <fence> <px ms> <1 if others wait>", holds no owner token.
local function hand_over(now)
  local next = head(now)
  if not next then return end
  drop(next.owner)
  local px = math.min(next.ttl, next.age_ms + CLAIM_WINDOW_MS)
  local fence = mint(now)
  redis.call('SET', KEYS[1], next.owner .. ':' .. fence, 'PX', px)
  local others = redis.call('EXISTS', KEYS[2])
  redis.call('PUBLISH', next.inbox, table.concat({ 'granted', next.number, fence, px, others }, ' '))
end
