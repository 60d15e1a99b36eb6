-- The keys of a lock on the server.
-- KEYS: 1 holder  string "<owner>:<fence>"
--       2 queue   list   the waiting owners, in order: "<owner> <place>", or "<owner>" if the place is in the hash
--       3 places  hash   owner -> place
--       4 fence   string the last fence that was minted, us
-- A place is "<ttl ms> <refreshed us> <number> <inbox>". In a short queue most waiters are granted the lock before they
-- refresh their places, so a place stands in the list at first, which saves two commands; its first refresh moves it
-- into the hash. Only the first NEAR entries of a queue contain places, so such a place is found at little cost.
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

-- The owner and the place of an entry of the queue. It is live unless it has not been refreshed for long; that of `me`
-- always is. Without a place, because it was evicted, an entry is not live.
local function read(entry, me)
  local owner, ttl, refreshed, number, inbox = string.match(entry, '^([^ ]+) (%d+) (%d+) (%d+) (.*)$')
  local in_hash = not owner
  if in_hash then
    owner = entry
    local place = redis.call('HGET', places, owner) or ''
    ttl, refreshed, number, inbox = string.match(place, '^(%d+) (%d+) (%d+) (.*)$')
  end
  local is_live = ttl and (owner == me or now - refreshed < STALE_MS * 1000)
  return { owner = owner, in_hash = in_hash, is_live = is_live, ttl = ttl, number = number, inbox = inbox }
end

-- Removes the first entry of the queue, which is `first`.
local function pop(first)
  redis.call('LPOP', queue)
  if first.in_hash then redis.call('HDEL', places, first.owner) end
end

-- The first place that is live or belongs to `me`; stale ones before it are removed.
local function head(me)
  while true do
    local entry = redis.call('LINDEX', queue, '0')
    if not entry then return nil end
    local first = read(entry, me)
    if first.is_live then return first end
    pop(first)
  end
end

-- The index of the entry of `owner` among the first NEAR, and the number of these.
local function near(owner)
  local entries = redis.call('LRANGE', queue, '0', NEAR - 1)
  for i, entry in ipairs(entries) do
    if entry == owner or string.sub(entry, 1, #owner + 1) == owner .. ' ' then return i - 1, #entries end
  end
  return nil, #entries
end

-- Writes the place of `owner` into the hash; whether it was not there yet.
local function write(owner, place)
  local is_new = redis.call('HSET', places, owner, place) == 1
  if is_new then redis.call('PEXPIRE', places, RETENTION_MS) end
  return is_new
end

-- Makes the first live place the holder and notifies its process; false if there is none. The last hold must be over.
-- `entry` stood first in the queue and was taken out of it; stale ones after it are removed.
-- The lease is short, one claim window, so that an unclaimed grant ends soon.
-- The message is "granted <number> <proof> <fence> <px ms> <foreign ms>". The proof shows that its sender knows the
-- owner token, which the message does not contain: a client that may publish on the channel can neither make one nor
-- turn an overheard one into one for another fence or length. `foreign` is how much longer this lock is remembered
-- as used by foreign clients.
local function hand_over(entry, foreign)
  local next
  repeat
    if not entry then return false end
    next = read(entry)
    if next.in_hash then redis.call('HDEL', places, next.owner) end
    entry = not next.is_live and redis.call('LPOP', queue)
  until next.is_live
  local px = string.format('%d', math.min(tonumber(next.ttl), CLAIM_WINDOW_MS))
  local fence = mint(counter, now_text)
  if not fence then return false end
  redis.call('SET', key, next.owner .. ':' .. fence, 'PX', px)
  local terms = fence .. ' ' .. px .. ' ' .. foreign
  local proof = redis.sha1hex(next.owner .. ' ' .. terms)
  redis.call('PUBLISH', next.inbox, 'granted ' .. next.number .. ' ' .. proof .. ' ' .. terms)
  return true
end
