-- Ends a hold, or gives up a place: one script, because the caller may not know which it has.
-- ARGV: 1 owner  2 stale ms  3 claim window ms
-- Answer: "released" (was the holder) | "left" (had a place) | "not yours"
-- Its first write is one that is allowed when the server is out of memory.

local owner = ARGV[1]
if fence_of(redis.call('GET', KEYS[1]), owner) then
  redis.call('DEL', KEYS[1])
  hand_over(now_us(), tonumber(ARGV[2]), tonumber(ARGV[3]))
  return 'released'
end
if redis.call('ZREM', KEYS[2], owner) == 1 then
  redis.call('HDEL', KEYS[3], owner)
  return 'left'
end
return 'not yours'
