-- Takes the lock, or takes or refreshes a place in its queue.
-- KEYS: see grant.lua
-- ARGV: 1 owner  2 ttl ms  3 limit us  4 "try" (never queues) | "join" | "poll" (refreshes, never queues anew)
--       5 "<number> <inbox>", where a waiter is notified
-- Answer, one line of text:
--       <fence> (granted, no waiters; the server's time was the same)
--       | "granted" <fence> <1 if others wait> <time us>
--       | "waiting" <seen fence> <1 if first, 2 if far back> <0 held | 1 held by a foreign client | 2 left open> <pttl>
--         <that client's hold as a number> <time us>
--       | "held" <pttl> <time us> | "gone" (no place, and not the holder) | "late" <time us> (nothing was done)
-- After its limit, in the server's time, the request does nothing: its caller has given up, and would hold the lock
-- unknowingly.

-- The short path: no waiter and no holder. A refused attempt writes nothing.
local owner, ttl, limit, mode, address = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local holder = redis.call('GET', KEYS[1])
if not holder and mode ~= 'poll' and redis.call('EXISTS', KEYS[2]) == 0 then
  local time = redis.call('TIME')
  local now = time[1] .. string.sub('00000' .. time[2], -6)
  if tonumber(now) > tonumber(limit) then return 'late ' .. now end
  local fence, refused = mint(KEYS[4], now)
  if refused then return refused end
  redis.call('SET', KEYS[1], owner .. ':' .. fence, 'PX', ttl)
  if fence == now then return fence end
  return 'granted ' .. fence .. ' 0 ' .. now
end
