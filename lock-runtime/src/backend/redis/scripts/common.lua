-- Shared by the scripts that touch the queue; prepended to each of them.
-- KEYS: 1 holder  string "<owner>:<fence>"
--       2 queue   zset   owner -> ticket
--       3 places  hash   owner -> "<ttl ms> <refreshed us> <number> <inbox>"
--       4 fence   string the last fence that was minted, us

local function now_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2] -- below 2^53 until the year 2255
end

local function text(n)
  return string.format('%.0f', n)
end

-- A hybrid clock: the server's time, or one more than the last, whichever is larger.
local function mint(now)
  local last = tonumber(redis.call('GET', KEYS[4]) or '0')
  local fence = text(now > last and now or last + 1)
  redis.call('SET', KEYS[4], fence)
  return fence
end

local function drop(owner)
  redis.call('ZREM', KEYS[2], owner)
  redis.call('HDEL', KEYS[3], owner)
end

-- The first place that is live, or is `me`; stale ones on the way are removed.
local function head(now, stale_ms, me)
  while true do
    local first = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
    if not first then return nil end
    local place = redis.call('HGET', KEYS[3], first)
    local ttl, refreshed, number, inbox = string.match(place or '', '^(%d+) (%d+) (%d+) (.*)$')
    if ttl then
      local age_ms = math.max(0, math.floor((now - tonumber(refreshed)) / 1000))
      if first == me or age_ms < stale_ms then
        return { owner = first, ttl = tonumber(ttl), age_ms = age_ms, inbox = inbox, number = number }
      end
    end
    drop(first)
  end
end

-- Makes the first live place the holder and tells its process. Precondition: the holder key does not exist.
-- The lease is short, the age of the place and the claim window: a grant that nobody claims ends soon.
-- The message holds no owner token.
local function hand_over(now, stale_ms, window_ms)
  local next = head(now, stale_ms)
  if not next then return end
  drop(next.owner)
  local px = math.min(next.ttl, next.age_ms + window_ms)
  local fence = mint(now)
  redis.call('SET', KEYS[1], next.owner .. ':' .. fence, 'PX', px)
  redis.call('PUBLISH', next.inbox, next.number .. ' ' .. fence .. ' ' .. px)
end

-- The fence of a holder's value that is this owner's.
local function fence_of(value, owner)
  if value and string.sub(value, 1, #owner + 1) == owner .. ':' then
    return string.sub(value, #owner + 2)
  end
end
