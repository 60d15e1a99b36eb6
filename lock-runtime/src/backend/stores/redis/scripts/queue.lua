-- The queue of a lock; see grant.lua.

-- The owner and the place of an entry of the queue. An entry is live if it has a place that belongs to `me`, or was
-- refreshed within STALE_MS.
local function read(entry, me)
  local owner, ttl, refreshed, number, inbox, in_hash = parts(entry)
  local is_live = ttl and (owner == me or now - refreshed < STALE_MS * 1000)
  return { owner = owner, in_hash = in_hash, is_live = is_live, ttl = ttl, number = number, inbox = inbox }
end

-- Removes the first entry of the queue, which is `first`.
local function pop(first)
  redis.call('LPOP', queue)
  if first.in_hash then redis.call('HDEL', places, first.owner) end
end

-- The first place that is live or belongs to `me`. Removes the stale places before it.
local function head(me)
  while true do
    local entry = redis.call('LINDEX', queue, '0')
    if not entry then return nil end
    local first = read(entry, me)
    if first.is_live then return first end
    pop(first)
  end
end

-- Grants the lock to the first live place; false if no place is live. Removes the stale places before it.
local function hand_over(foreign)
  local first = head()
  if not first then return false end
  pop(first)
  return grant(first.owner, first.ttl, first.number, first.inbox, foreign)
end

-- The entry of `owner` that contains its place, and the entry's index; nil without such an entry.
local function near(owner)
  for i, entry in ipairs(redis.call('LRANGE', queue, '0', INLINE_PLACES - 1)) do
    if string.sub(entry, 1, #owner + 1) == owner .. ' ' then return entry, i - 1 end
  end
end

-- Lets the queue outlast the last place that is not stale, and "queues" outlast the queue.
local function extend()
  redis.call('PEXPIRE', queue, RETENTION_MS)
  redis.call('PEXPIRE', places, RETENTION_MS)
  redis.call('SET', queues, '', 'PX', RETENTION_MS)
end

-- Writes the place of `owner` into the hash; true if the hash had no place of this owner.
local function write(owner, place)
  local is_new = redis.call('HSET', places, owner, place) == 1
  if is_new then redis.call('PEXPIRE', places, RETENTION_MS) end
  return is_new
end
