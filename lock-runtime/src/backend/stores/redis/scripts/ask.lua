-- Takes the lock, or takes or refreshes a place in its queue; arguments and answers as in acquire_short.lua.
local function ask(holder, owner, ttl, limit, mode, address)
  if now > tonumber(limit) then return 'late ' .. now_text end

  -- A repeated request, or a poll after a grant whose push was lost, gets the same fence again.
  if holder and string.sub(holder, 1, #owner + 1) == owner .. ':' then
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

  local left_open = -1
  if not holder then
    local first = head(owner)
    left_open = first and redis.call('PTTL', open()) or -1
    if not first or (first.owner == owner and left_open < 0) then
      local fence, refused = mint(counter, now_text)
      if refused then return refused end
      -- A place whose other half was evicted must leave nothing behind.
      if first then pop(first) elseif mode == 'poll' then redis.call('HDEL', places, owner) end
      redis.call('SET', key, owner .. ':' .. fence, 'PX', ttl)
      return 'granted ' .. fence .. ' ' .. redis.call('EXISTS', queue) .. ' ' .. now_text
    end
    if left_open < 0 then hand_over(0) end -- another waiter is first
  end
  if mode == 'try' then
    local left = left_open < 0 and redis.call('PTTL', key) or left_open
    -- Without a format, Lua writes a large number as a power of ten.
    return string.format('held %.0f ', left) .. now_text
  end

  local rank
  -- An owner has one place, however often it asks.
  if mode == 'join' and (write(owner, place) or not redis.call('LPOS', queue, owner)) then
    rank = redis.call('RPUSH', queue, owner)
  else
    local index = redis.call('LPOS', queue, owner, 'MAXLEN', FAR)
    rank = index and index + 1 or FAR + 1
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
  local seen = ours and string.match(holder, ':(%d+)$', -17)
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
      redis.call('DEL', open())
    end
    -- Only the first in the queue, or a waiter's last poll before it gives up, needs the end of the lease.
    if rank == 1 or mode == 'poll' then pttl = redis.call('PTTL', key) end
  end
  local where = rank == 1 and 1 or rank > FAR and 2 or 0
  return 'waiting ' .. seen .. string.format(' %d %d %.0f %.0f ', where, state, pttl, hold) .. now_text
end
