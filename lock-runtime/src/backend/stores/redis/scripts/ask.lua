-- Takes the lock, or takes or refreshes a place in its queue; arguments and answers as in acquire_short.lua.
local function ask(holder, owner, ttl, limit, mode, address)
  if now > tonumber(limit) then return { 'late', now_text } end

  -- A repeated request, or a grant whose push was lost: the same fence again.
  if holder and string.sub(holder, 1, #owner + 1) == owner .. ':' then
    redis.call('PEXPIRE', key, ttl)
    return { 'granted', string.sub(holder, #owner + 2), redis.call('EXISTS', queue), now_text }
  end
  local place = mode ~= 'try' and ttl .. ' ' .. now_text .. ' ' .. address
  if mode == 'poll' and write(owner, place) then
    local index = near(owner)
    if not index then
      redis.call('HDEL', places, owner)
      return { 'gone' }
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
      return { 'granted', fence, redis.call('EXISTS', queue), now_text }
    end
    if left_open < 0 then hand_over(redis.call('LPOP', queue), 0) end -- another waiter is first
  end
  if mode == 'try' then
    return { 'held', left_open < 0 and redis.call('PTTL', key) or left_open, now_text }
  end

  local is_first, is_new = false, false
  if mode == 'poll' then
    local first = redis.call('LINDEX', queue, '0')
    is_first = first == owner
    if not first then -- evicted
      redis.call('HDEL', places, owner)
      return { 'gone' }
    end
  else
    local index, count = near(owner)
    is_first = index == 0 or count == 0
    if index then -- it asks again: a token has one place, however often it asks
      redis.call('LSET', queue, index, owner)
      write(owner, place)
    elseif count < NEAR then
      redis.call('RPUSH', queue, owner .. ' ' .. place)
      is_new = true
    elseif write(owner, place) or not redis.call('LPOS', queue, owner) then
      redis.call('RPUSH', queue, owner)
    end
  end
  -- The queue outlasts its last place that is not stale. A check costs less than extending it each time. Most waiters
  -- need not check it as they join: one that waits for long does so when it polls, and where none does, new ones join.
  if (is_first or mode == 'poll' or now % CHECK_EVERY_US < CHECK_US) and redis.call('PTTL', queue) < KEPT_MS then
    redis.call('PEXPIRE', queue, RETENTION_MS)
    redis.call('PEXPIRE', places, RETENTION_MS)
  end

  local ours = holder and string.find(holder, '^1%l:') ~= nil
  -- The fence of a holder of ours. Only the last 17 characters are searched, because the value may be long.
  local seen = ours and string.match(holder, ':(%d+)$', -17)
  if is_new and is_first and seen then
    -- Notifies the holder's process that others wait, so that it does not hand the lock over among its own tasks
    -- forever. Later waiters need not: until they are granted the lock, each grant is one by `hand_over`, whose holder
    -- assumes that others wait.
    local inbox_id = string.match(holder, '^[^:]*:[^:]*:(%x+):%x+:%d+$')
    local inbox = string.match(address, '^%d+ (.*)$')
    -- A value that only looks like ours may name a forbidden channel.
    if inbox_id then
      redis.pcall('PUBLISH', string.sub(inbox, 1, -1 - #inbox_id) .. inbox_id, 'contended ' .. seen .. ' ' .. key)
    end
  end
  -- No grant of this lock before now has a larger fence than this one: the holder's, otherwise the counter's. Without a
  -- counter, for example after a loss of all data, no earlier push may count.
  seen = seen or redis.call('GET', counter) or now_text
  local first, state, pttl, hold = is_first and 1 or 0, 0, -1, 0
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
    if is_first or mode == 'poll' then pttl = redis.call('PTTL', key) end
  end
  return { 'waiting', seen, first, state, pttl, hold, now_text }
end
