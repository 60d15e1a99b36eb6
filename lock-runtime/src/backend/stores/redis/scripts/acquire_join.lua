-- The path of most waiters: the lock is held by a client of this library, and the caller joins the lock's queue. A
-- token joins once; a client that may repeat the request has to write its place into the hash at once, because the hash
-- shows a repetition.

-- The fence of a holder that is a client of this library. Only the last 17 characters are searched, because a foreign
-- value may be long.
local seen = mode == 'join' and holder and string.find(holder, '^1%l:') and string.match(holder, ':(%d+)$', -17)
if seen and string.sub(holder, 1, #owner + 1) ~= owner .. ':' then
  local time = redis.call('TIME')
  local now = time[1] .. string.sub('00000' .. time[2], -6)
  if tonumber(now) > tonumber(limit) then return 'late ' .. now end
  local place = ttl .. ' ' .. now .. ' ' .. address
  local rank = redis.call('RPUSH', KEYS[2], owner .. ' ' .. place)
  if rank > NEAR then
    redis.call('LSET', KEYS[2], '-1', owner)
    if redis.call('HSET', KEYS[3], owner, place) == 1 then redis.call('PEXPIRE', KEYS[3], RETENTION_MS) end
  end
  -- The queue, its places and "queues" outlast the last place that is not stale; a check costs less than extending
  -- these keys each time.
  if rank == 1 or redis.call('PTTL', KEYS[2]) < STALE_MS then
    redis.call('PEXPIRE', KEYS[2], RETENTION_MS)
    redis.call('PEXPIRE', KEYS[3], RETENTION_MS)
    redis.call('SET', string.sub(KEYS[4], 1, -6) .. 'queues', '', 'PX', RETENTION_MS)
  end
  if rank > FAR then return 'waiting ' .. seen .. ' 2 0 -1 0 ' .. now end
  if rank > 1 then return 'waiting ' .. seen .. ' 0 0 -1 0 ' .. now end

  -- Notifies the holder's process that others wait, so that it does not hand the lock over among its own tasks forever.
  -- Later waiters need not notify: until they are granted the lock, each grant is made by `grant`, and its holder
  -- assumes that others wait.
  local inbox_id = string.match(holder, '^[^:]*:[^:]*:(%x+):%x+:%d+$')
  local inbox = string.match(address, '^%d+ (.*)$')
  -- A value that only looks like ours may name a forbidden channel.
  if inbox_id then
    redis.pcall('PUBLISH', string.sub(inbox, 1, -1 - #inbox_id) .. inbox_id, 'contended ' .. seen .. ' ' .. KEYS[1])
  end
  -- Without a format, Lua writes a large number as a power of ten.
  return 'waiting ' .. seen .. string.format(' 1 0 %.0f 0 ', redis.call('PTTL', KEYS[1])) .. now
end
