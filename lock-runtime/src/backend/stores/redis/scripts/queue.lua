-- The keys of a lock on the server.
-- KEYS: 1 holder  string "<owner>:<fence>"
--       2 queue   list   the waiting owners, in order
--       3 places  hash   owner -> "<ttl ms> <refreshed us> <number> <inbox>"
--       4 fence   string the last fence that was minted, us
-- Next to the queue stands "open" while the lock is left to clients that do not queue; see release_long.lua.
--
-- This part stands between the short path of a script, for a lock without waiters, and its long path: beginning it
-- costs as much as running the short path. Above it stand `mint` and the constants of place.rs. Each call in a
-- script is a good part of its cost, and so is each number formatted as text.

local key, queue, places, counter = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] -- below 2^53 until the year 2255
local now_text = time[1] .. string.format('%06d', time[2])

-- The key that exists while the lock is left open.
local function open()
  return string.sub(queue, 1, -6) .. 'open'
end

-- The place of `owner` if it is live or belongs to `me`.
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

-- The first place that is live or belongs to `me`; stale ones before it are removed.
local function head(me)
  while true do
    local first = redis.call('LINDEX', queue, '0')
    if not first then return nil end
    local place = live(first, me)
    if place then return place end
    pop()
  end
end

-- Makes the first live place the holder and notifies its process; false if there is none. The last hold must be over.
-- The lease is short, one claim window, so that an unclaimed grant ends soon.
-- The message is "granted <number> <proof> <fence> <px ms> <1 if others wait> <foreign ms>". The proof shows that its
-- sender knows the owner token, which the message does not contain: a client that may publish on the channel can
-- neither make one nor turn an overheard one into one for another fence or length. `foreign` is how much longer
-- this lock is remembered as used by foreign clients.
local function hand_over(foreign)
  local owner, next
  repeat
    owner, next = pop()
    if not owner then return false end
  until next -- stale ones before it are removed
  local px = string.format('%d', math.min(tonumber(next.ttl), CLAIM_WINDOW_MS))
  local fence = mint(counter, now_text)
  if not fence then return false end
  redis.call('SET', key, owner .. ':' .. fence, 'PX', px)
  local terms = fence .. ' ' .. px .. ' ' .. redis.call('EXISTS', queue) .. ' ' .. foreign
  local proof = redis.sha1hex(owner .. ' ' .. terms)
  redis.call('PUBLISH', next.inbox, 'granted ' .. next.number .. ' ' .. proof .. ' ' .. terms)
  return true
end
