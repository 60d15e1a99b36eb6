-- Takes the lock, or takes or refreshes a place in its queue.
-- KEYS: see queue.lua
-- ARGV: 1 owner  2 ttl ms  3 "try" (never queues) | "join" | "poll" (refreshes, never queues anew)  4 "<number> <inbox>"
-- Answer: fence (granted, nobody waits) | {"granted", fence, 1 if others wait} | {"waiting", seen fence, rank, pttl} | {"held", pttl} | {"gone"}

-- The short way: nobody waits and nobody holds. A fence that is minted in vain does no harm.
if ARGV[3] ~= 'poll' and redis.call('EXISTS', KEYS[2]) == 0 then
  local t = redis.call('TIME')
  local fence = t[1] .. string.format('%06d', t[2])
  local last = redis.call('SET', KEYS[4], fence, 'GET')
  if last and tonumber(last) >= tonumber(fence) then
    fence = string.format('%.0f', tonumber(last) + 1)
    redis.call('SET', KEYS[4], fence)
  end
  if redis.call('SET', KEYS[1], ARGV[1] .. ':' .. fence, 'NX', 'PX', ARGV[2]) then return fence end
end
