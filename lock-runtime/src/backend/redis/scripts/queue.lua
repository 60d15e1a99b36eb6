-- What a lock has on the server. Every script but `renew` takes these keys.
-- KEYS: 1 holder  string "<owner>:<fence>"
--       2 queue   list   the owners that wait, in order
--       3 places  hash   owner -> "<ttl ms> <refreshed us> <number> <inbox>"
--       4 fence   string the last fence that was minted, us
--
-- This part stands between the short way of a script, for a lock that nobody waits for, and its long way: it costs as
-- much to begin as the short way costs to run. Above it stand the constants STALE_MS, CLAIM_WINDOW_MS, RETENTION_MS
-- and OPEN_EVERY_US. Every call that a script makes is a good part of what it costs, and so is a number that is
-- written as text.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] -- below 2^53 until the year 2255
local now_text = time[1] .. string.format('%06d', time[2])

-- A hybrid clock: the server's time, or one more than the last, whichever is larger.
local function mint()
  local fence = now_text
  local last = redis.call('SET', KEYS[4], fence, 'GET')
  if last and tonumber(last) >= now then
    fence = string.format('%.0f', tonumber(last) + 1)
    redis.call('SET', KEYS[4], fence)
  end
  return fence
end

-- The place of `owner` if it is live, or is that of `me`.
local function live(owner, me)
  local place = redis.call('HGET', KEYS[3], owner)
  local ttl, refreshed, number, inbox = string.match(place or '', '^(%d+) (%d+) (%d+) (.*)$')
  if not ttl then return nil end
  local age_ms = math.max(0, math.floor((now - refreshed) / 1000))
  if owner ~= me and age_ms >= STALE_MS then return nil end
  return { owner = owner, ttl = ttl, age_ms = age_ms, inbox = inbox, number = number }
end

-- Takes the first place out of the queue.
local function pop()
  local owner = redis.call('LPOP', KEYS[2])
  local place = owner and live(owner)
  if owner then redis.call('HDEL', KEYS[3], owner) end
  return owner, place
end

-- The first place that is live, or is `me`; stale ones on the way are removed.
local function head(me)
  while true do
    local first = redis.call('LINDEX', KEYS[2], '0')
    if not first then return nil end
    local place = live(first, me)
    if place then return place end
    pop()
  end
end

-- Makes the first live place the holder and tells its process; false if there is none. Nobody else holds any more.
-- The lease is short, the age of the place and the claim window: a grant that nobody claims ends soon.
-- The message, "granted <number> <fence> <px ms> <1 if others wait>", holds no owner token.
local function hand_over()
  local owner, next
  repeat
    owner, next = pop()
    if not owner then return false end
  until next -- stale ones on the way are removed
  local px = string.format('%d', math.min(tonumber(next.ttl), next.age_ms + CLAIM_WINDOW_MS))
  local fence = mint()
  redis.call('SET', KEYS[1], owner .. ':' .. fence, 'PX', px)
  local others = redis.call('EXISTS', KEYS[2])
  redis.call('PUBLISH', next.inbox, 'granted ' .. next.number .. ' ' .. fence .. ' ' .. px .. ' ' .. others)
  return true
end
