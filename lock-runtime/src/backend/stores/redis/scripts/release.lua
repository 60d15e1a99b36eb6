-- Ends a hold, or gives up a place: one script, because the caller may not know which it has.
-- KEYS: 1 fence  2 queues  3 holder  4 queue  5 places  6 open; see grant.lua
-- ARGV: 1 owner  2 for how many more ms the lock is remembered as used by foreign clients, if it is
-- Answer: "released" (was the holder) | "left" (had a place) | "not yours"
-- The script works even when the server is out of memory: its first write (LPOP, DEL or HDEL) is allowed then, and all
-- writes after the first are allowed, too.

local owner = ARGV[1]
local holder = redis.call('GET', KEYS[3])
local is_holder = holder and string.sub(holder, 1, #owner + 1) == owner .. ':'
local entry = is_holder and redis.call('LPOP', KEYS[4])
if is_holder and not entry then
  redis.call('DEL', KEYS[3])
  return 'released'
end

--@ fence.lua
--@ grant.lua

-- A lock with many waiters is never free, and a client that knows only `SET NX`, and does not queue, would never get
-- it. Therefore, in each period of OPEN_EVERY_US, the hold during which the period ends is not handed over: the lock is
-- left open to foreign clients for OPEN_MS, and all clients of this library, the caller too, wait until the opening
-- ends. A single foreign client that asks repeatedly finds one long opening more surely than many short openings.
-- Several foreign clients need many openings (see foreign.rs), so periods are shorter while the lock is remembered as
-- used by foreign clients.
local opens, length
if is_holder then
  local every
  every, length = OPEN_EVERY_US, OPEN_MS
  if ARGV[2] then every, length = OPEN_EVERY_FOREIGN_US, OPEN_FOREIGN_MS end
  local since = tonumber(string.sub(holder, #owner + 2)) or now
  -- The phase keeps all locks from being opened at the same moments.
  local phase = every / 97 * ((31 * string.byte(key, -1) + string.byte(key, math.floor(#key / 2) + 1)) % 97)
  -- The lock is opened if a period ended less than the hold's length ago. If the clock was set back, the fence does not
  -- show when the hold began; then every release in the first `length` ms of a period opens the lock.
  opens = (now + phase) % every < (since <= now and now - since or length * 1000)
end

-- The path of most releases: the first waiter is live.
if is_holder and not opens then
  local next, ttl, refreshed, number, inbox, in_hash = parts(entry)
  if in_hash then redis.call('HDEL', places, next) end
  if ttl and now - refreshed < STALE_MS * 1000 and grant(next, ttl, number, inbox, ARGV[2] or 0) then
    return 'released'
  end
end

--@ queue.lua

if not is_holder then
  local place = owner
  if redis.call('HDEL', places, owner) == 0 then
    place = near(owner)
    if not place then return 'not yours' end
  end
  redis.call('LREM', queue, '1', place)
  return 'left'
end

if opens then
  redis.call('LPUSH', queue, entry)
  extend() -- the list is a new one, without an expiry, if `entry` was its only entry
  redis.call('DEL', key)
  local first = head()
  if first then
    redis.call('SET', open, '1', 'PX', length)
    redis.call('PUBLISH', first.inbox, 'free ' .. first.number .. ' ' .. length)
  end
elseif not hand_over(ARGV[2] or 0) then
  redis.call('DEL', key)
end
return 'released'
