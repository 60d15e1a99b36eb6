-- The keys of a lock on the server.
-- KEYS: 1 fence   string the last fence of the domain that was minted, us
--       2 queues  string exists as long as a lock of the domain may have a queue: where "queues" is absent, the scripts
--                        for many locks need not look for the queue of each lock
--       then for each lock:
--       holder    string "<owner>:<fence>", or "<owner>:<fence>!" once the grant was revoked: see revoke.lua
--       queue     list   the waiting owners, in order: "<owner> <place>", or "<owner>" if the place is in the hash
--       places    hash   owner -> place
--       open      string exists while the lock is left to clients that do not queue; see release.lua
-- A place is "<ttl ms> <refreshed us> <number> <inbox>". A place among the first INLINE_PLACES entries is at first
-- part of its entry in the list. This saves two commands if the waiter is granted the lock before it refreshes the
-- place, as most waiters in a short queue are. The first refresh moves the place into the hash. Entries farther back
-- contain no places, so that a place in an entry is found at little cost.
--
-- The scripts that contain this file begin with the constants of queue/scripts.rs. They contain the functions of other
-- files only below the paths that do not need these functions: creating one function costs the server 2,000
-- instructions, and the whole shortest path costs 60,000 (callgrind, Redis 7.0). The server also pays for each call of
-- a command, for each key (1,500 instructions), for each number that is formatted as text, and for each table in an
-- answer.

local counter, queues = KEYS[1], KEYS[2]
local key, queue, places, open = KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local time = redis.call('TIME')
local now_text = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(now_text) -- below 2^53 until the year 2255

-- The parts of an entry of the queue, and whether its place is in the hash. If the place was evicted, the owner
-- is the only part.
local function parts(entry)
  local owner, ttl, refreshed, number, inbox = string.match(entry, '^(%S+) (%d+) (%d+) (%d+) (.*)$')
  if owner then return owner, ttl, refreshed, number, inbox, false end
  local place = redis.call('HGET', places, entry) or ''
  ttl, refreshed, number, inbox = string.match(place, '^(%d+) (%d+) (%d+) (.*)$')
  return entry, ttl, refreshed, number, inbox, true
end

-- Makes the owner of a place the holder, and notifies its process; false if no fence is left. The last hold must be
-- over. The lease lasts for `ttl`, but for CLAIM_WINDOW_MS at most, so that a grant that no waiter uses ends early.
-- The message is "granted <number> <proof> <fence> <px ms> <foreign ms>". The proof shows that its sender knows the
-- owner token, which the message does not contain: a client that may publish on the channel can neither make a proof
-- nor turn an overheard proof into a proof for another fence or length. `foreign` is how much longer this lock is
-- remembered as used by foreign clients. The owner token is the last 32 characters of an owner, which fit into one
-- block of the hash together with the usual terms.
local function grant(owner, ttl, number, inbox, foreign)
  local fence = mint(counter, now_text, now)
  if not fence then return false end
  local px = tonumber(ttl) < tonumber(CLAIM_WINDOW_MS) and ttl or CLAIM_WINDOW_MS
  redis.call('SET', key, owner .. ':' .. fence, 'PX', px)
  local terms = fence .. ' ' .. px .. ' ' .. foreign
  local proof = redis.sha1hex(string.sub(owner, -32) .. terms)
  redis.call('PUBLISH', inbox, 'granted ' .. number .. ' ' .. proof .. ' ' .. terms)
  return true
end
