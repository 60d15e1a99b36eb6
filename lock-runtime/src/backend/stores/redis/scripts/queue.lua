-- What a lock has on the server. Every script but `renew` takes these keys.
-- KEYS: 1 holder  string "<owner>:<fence>"
--       2 queue   list   the owners that wait, in order
--       3 places  hash   owner -> "<ttl ms> <refreshed us> <number> <inbox>"
--       4 fence   string the last fence that was minted, us
-- Beside the queue stands "open" while the lock is left to clients that do not queue; see release_long.lua.
--
-- This part stands between the short way of a script, for a lock that nobody waits for, and its long way: it costs as
-- much to begin as the short way costs to run. Above it stand `mint` and the constants of place.rs. Every call that a
-- script makes is a good part of what it costs, and so is a number that is written as text.

local key, queue, places, counter = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] -- below 2^53 until the year 2255
local now_text = time[1] .. string.format('%06d', time[2])

-- The key that stands while the lock is left open.
local function open()
  return string.sub(queue, 1, -6) .. 'open'
end

-- The place of `owner` if it is live, or is that of `me`.
local function live(owner, me)
  local place = redis.call('HGET', places, owner)
  local ttl, refreshed, number, inbox = string.match(place or '', '^(%d+) (%d+) (%d+) (.*)$')
  if not ttl then return nil end
  if owner ~= me and now - refreshed >= STALE_MS * 1000 then return nil end
  return { owner = owner, ttl = ttl, inbox = inbox, number = number }
end

-- Takes the first place out of the queue.
local function pop()
  local owner = redis.call('LPOP', queue)
  local place = owner and live(owner)
  if owner then redis.call('HDEL', places, owner) end
  return owner, place
end

-- The first place that is live, or is `me`; stale ones on the way are removed.
local function head(me)
  while true do
    local first = redis.call('LINDEX', queue, '0')
    if not first then return nil end
    local place = live(first, me)
    if place then return place end
    pop()
  end
end

-- Makes the first live place the holder and tells its process; false if there is none. Nobody else holds any more.
-- The lease is short, one claim window: a grant that nobody claims ends soon.
-- The message is "granted <number> <proof> <fence> <px ms> <1 if others wait> <foreign ms>". The proof shows that its
-- sender knows the owner token, which the message does not hold: a client that may publish on the channel cannot make one,
-- nor one for another fence or length from one that was overheard. `foreign` is for how long another kind of client is
-- remembered to use this lock.
local function hand_over(foreign)
  local owner, next
  repeat
    owner, next = pop()
    if not owner then return false end
  until next -- stale ones on the way are removed
  local px = string.format('%d', math.min(tonumber(next.ttl), CLAIM_WINDOW_MS))
  local fence = mint(counter, now_text)
  if not fence then return false end
  redis.call('SET', key, owner .. ':' .. fence, 'PX', px)
  local terms = fence .. ' ' .. px .. ' ' .. redis.call('EXISTS', queue) .. ' ' .. foreign
  local proof = redis.sha1hex(owner .. ' ' .. terms)
  redis.call('PUBLISH', next.inbox, 'granted ' .. next.number .. ' ' .. proof .. ' ' .. terms)
  return true
end
