if not is_holder then
  local place = owner
  if redis.call('HDEL', places, owner) == 0 then
    local index = near(owner)
    if not index then return 'not yours' end
    place = redis.call('LINDEX', queue, index)
  end
  redis.call('LREM', queue, '1', place)
  return 'left'
end

-- A lock with many waiters is never free, and a client that knows only `SET NX`, and does not queue, would never
-- get it. So one hold in each period of OPEN_EVERY_US, the one in which the period ends, is not handed over: the
-- lock is left open to foreign clients for OPEN_MS, and all of ours wait until that has passed, this caller too. A
-- client that asks repeatedly finds one long opening more surely than many short ones. Periods are shorter while
-- the lock is remembered as used by foreign clients.
local every, length = OPEN_EVERY_US, OPEN_MS
if ARGV[2] ~= '0' then every, length = OPEN_EVERY_FOREIGN_US, OPEN_FOREIGN_MS end
local opens
local since = tonumber(string.sub(holder, #owner + 2)) or now
-- Not at the same moments for all locks.
local phase = every / 97 * ((31 * string.byte(key, -1) + string.byte(key, math.floor(#key / 2) + 1)) % 97)
if since <= now then
  opens = math.floor((now + phase) / every) ~= math.floor((since + phase) / every)
else
  -- The clock was set back, and the fence does not say when the hold began: every release in the first part of a
  -- period opens the lock.
  opens = (now + phase) % every < length * 1000
end
if opens then
  redis.call('LPUSH', queue, entry)
  redis.call('PEXPIRE', queue, RETENTION_MS)
  redis.call('DEL', key)
  local first = head()
  if first then
    redis.call('SET', open(), '1', 'PX', length)
    redis.call('PUBLISH', first.inbox, 'free ' .. first.number .. ' ' .. length)
  end
elseif not hand_over(entry, ARGV[2]) then
  redis.call('DEL', key)
end
return 'released'
