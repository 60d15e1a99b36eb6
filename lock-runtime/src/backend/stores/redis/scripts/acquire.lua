-- Takes the lock, or takes or refreshes a place in its queue; or refreshes places in the queues of many locks.
-- KEYS: 1 fence  2 queues  then for each lock its holder, queue, places, open; see grant.lua
-- ARGV: 1 limit us  2 "try" (never queues) | "join" | "poll" (refreshes, never queues anew)
--       then for each lock: owner, ttl ms, and, except with "try", "<number> <inbox>", where the waiter is notified
-- Only "poll" may name several locks. The answer is then a list that contains, for each lock, the answer that a call
-- about this lock alone would have, or an error as in each.lua.
-- Answer, one line of text:
--       <fence> (granted, no waiters; the fence is also the server's time, us)
--       | "granted" <fence> <1 if others wait> <time us>
--       | "waiting" <seen fence> <1 if first, 2 if far back, otherwise 0>
--         <0 held | 1 held by a foreign client | 2 left open> <pttl>
--         <a number for the foreign client's hold, otherwise 0> <time us>, then with "poll" [<holder>]
--       | "held" <pttl> <time us> [<holder>] | "gone" (no place, and not the holder)
--       | "revoked" <time us> (the holder, whose grant was revoked) | "late" <time us> (nothing was done)
-- [<holder>] is the holder as in shown.lua, if there is one.
-- After its limit, in the server's time, the request does nothing: its caller has given up, and would hold the lock
-- unknowingly.

--@ fence.lua

-- The short path: no waiter and no holder.
local limit, mode, owner, ttl, address = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local is_alone = #KEYS == 6
local holder = is_alone and redis.call('GET', KEYS[3])
if not holder and mode ~= 'poll' and redis.call('EXISTS', KEYS[4]) == 0 then
  local time = redis.call('TIME')
  local now = time[1] .. string.sub('00000' .. time[2], -6)
  local now_number = tonumber(now)
  if now_number > tonumber(limit) then return 'late ' .. now end
  local fence, refused = mint(KEYS[1], now, now_number)
  if refused then return refused end
  redis.call('SET', KEYS[3], owner .. ':' .. fence, 'PX', ttl)
  if fence == now then return fence end
  return 'granted ' .. fence .. ' 0 ' .. now
end

-- The path of most waiters: the lock is held by a client of this library, and the caller joins the lock's queue. This
-- path does not check whether the owner has a place already, because this library has "join" executed once for each
-- owner. A client that may repeat an executed "join" must write each place into the hash at once, because the hash
-- shows the repetition.

-- The fence of a holder that is a client of this library. Only the last 18 characters are searched, because a foreign
-- value may be long.
local seen = mode == 'join' and holder and string.find(holder, '^1%l:') and string.match(holder, ':(%d+)!?$', -18)
if seen and string.sub(holder, 1, #owner + 1) ~= owner .. ':' then
  local time = redis.call('TIME')
  local now = time[1] .. string.sub('00000' .. time[2], -6)
  if tonumber(now) > tonumber(limit) then return 'late ' .. now end
  local place = ttl .. ' ' .. now .. ' ' .. address
  local rank = redis.call('RPUSH', KEYS[4], owner .. ' ' .. place)
  if rank > INLINE_PLACES then
    redis.call('LSET', KEYS[4], '-1', owner)
    if redis.call('HSET', KEYS[5], owner, place) == 1 then redis.call('PEXPIRE', KEYS[5], RETENTION_MS) end
  end
  -- The queue, its places and "queues" outlast the last place that is not stale; a check costs less than extending
  -- these keys each time.
  if rank == 1 or redis.call('PTTL', KEYS[4]) < STALE_MS then
    redis.call('PEXPIRE', KEYS[4], RETENTION_MS)
    redis.call('PEXPIRE', KEYS[5], RETENTION_MS)
    redis.call('SET', KEYS[2], '', 'PX', RETENTION_MS)
  end
  if rank > FAR_RANK then return 'waiting ' .. seen .. ' 2 0 -1 0 ' .. now end
  if rank > 1 then return 'waiting ' .. seen .. ' 0 0 -1 0 ' .. now end

  -- Notifies the holder's process that others wait. Without this message, the process could hand the lock over among
  -- its own tasks until a second has passed since the grant. The waiters behind the first need not notify: a holder
  -- that receives its grant as a message assumes that others wait, and an answer with a grant says whether others wait.
  local inbox_id = string.match(holder, '^[^:]*:[^:]*:(%x+):%x+:%d+!?$')
  local inbox = string.match(address, '^%d+ (.*)$')
  -- A value that only looks like ours may name a forbidden channel.
  if inbox_id then
    redis.pcall('PUBLISH', string.sub(inbox, 1, -1 - #inbox_id) .. inbox_id, 'contended ' .. seen .. ' ' .. KEYS[3])
  end
  -- Without a format, Lua writes a large number as a power of ten.
  return 'waiting ' .. seen .. string.format(' 1 0 %.0f 0 ', redis.call('PTTL', KEYS[3])) .. now
end

--@ grant.lua
--@ queue.lua
--@ shown.lua

-- Takes the lock, or takes or refreshes a place.
local function ask(holder, owner, ttl, address)
  if now > tonumber(limit) then return 'late ' .. now_text end

  -- A repeated request, or a poll after a grant whose push was lost, gets the same fence again.
  if holder and string.sub(holder, 1, #owner + 1) == owner .. ':' then
    -- A revoked grant must not last longer. It is not freed here: the caller may yet believe a message about the grant
    -- that overtakes this answer.
    if string.sub(holder, -1) == '!' then return 'revoked ' .. now_text end
    redis.call('PEXPIRE', key, ttl)
    return 'granted ' .. string.sub(holder, #owner + 2) .. ' ' .. redis.call('EXISTS', queue) .. ' ' .. now_text
  end
  local place = mode ~= 'try' and ttl .. ' ' .. now_text .. ' ' .. address
  if mode == 'poll' and write(owner, place) then
    local _, index = near(owner)
    if not index then
      redis.call('HDEL', places, owner)
      return 'gone'
    end
    redis.call('LSET', queue, index, owner)
  end

  local left_open, behind = -1, holder and ' ' .. shown(holder) or ''
  if not holder then
    local first = head(owner)
    left_open = first and redis.call('PTTL', open) or -1
    if not first or (first.owner == owner and left_open < 0) then
      local fence, refused = mint(counter, now_text, now)
      if refused then return refused end
      -- After an eviction of the queue, the place of a poll is only in the hash, and must not stay there.
      if first then pop(first) elseif mode == 'poll' then redis.call('HDEL', places, owner) end
      redis.call('SET', key, owner .. ':' .. fence, 'PX', ttl)
      return 'granted ' .. fence .. ' ' .. redis.call('EXISTS', queue) .. ' ' .. now_text
    end
    if left_open < 0 then hand_over(0) end -- another waiter is first
  end
  if mode == 'try' then
    local left = left_open < 0 and redis.call('PTTL', key) or left_open
    -- Without a format, Lua writes a large number as a power of ten.
    return string.format('held %.0f ', left) .. now_text .. behind
  end

  local rank
  -- An owner has one place, however often it asks.
  if mode == 'join' and (write(owner, place) or not redis.call('LPOS', queue, owner)) then
    rank = redis.call('RPUSH', queue, owner)
  else
    local index = redis.call('LPOS', queue, owner, 'MAXLEN', FAR_RANK)
    rank = index and index + 1 or FAR_RANK + 1
  end
  local left = redis.call('PTTL', queue)
  if left == -2 then -- evicted
    redis.call('HDEL', places, owner)
    return 'gone'
  end
  if left < STALE_MS then extend() end

  local ours = holder and string.find(holder, '^1%l:') ~= nil
  -- No earlier grant of this lock has a larger fence than `seen`, which is the fence of the holder if that is a client
  -- of this library, otherwise the counter's. Without a counter, for example after a loss of all data, `seen` is the
  -- time, so that no earlier push counts.
  local seen = ours and string.match(holder, ':(%d+)!?$', -18)
  if not seen then
    seen = string.match(redis.call('GET', counter) or '', '^%d+$') or now_text
    if tonumber(seen) > LAST_FENCE then return redis.error_reply('FENCE ' .. seen) end
  end
  local state, pttl, hold = 0, -1, 0
  if left_open >= 0 then
    state, pttl = 2, left_open
  else
    if holder and not ours then
      -- Enough of the value to tell this hold from the next one.
      state, hold = 1, tonumber(string.sub(redis.sha1hex(string.sub(holder, -64)), 1, 8), 16)
      -- The client for which the lock was left open has come in. If the opening stayed, that client could take the
      -- lock again after each of its releases until the opening ends.
      redis.call('DEL', open)
    end
    -- Only the first in the queue, or a waiter's last poll before it gives up, needs the end of the lease.
    if rank == 1 or mode == 'poll' then pttl = redis.call('PTTL', key) end
  end
  local where = rank == 1 and 1 or rank > FAR_RANK and 2 or 0
  local answer = 'waiting ' .. seen .. string.format(' %d %d %.0f %.0f ', where, state, pttl, hold) .. now_text
  return mode == 'poll' and answer .. behind or answer
end

-- One of many locks may have a key of a wrong type, which must fail the poll of this lock only.
if is_alone then return ask(holder, owner, ttl, address) end
--@ each.lua
return each({}, (#KEYS - 2) / 4, function(i)
  key, queue, places, open = KEYS[4 * i - 1], KEYS[4 * i], KEYS[4 * i + 1], KEYS[4 * i + 2]
  return ask(redis.call('GET', key), ARGV[3 * i], ARGV[3 * i + 1], ARGV[3 * i + 2])
end)
