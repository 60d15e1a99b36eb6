-- Ends a hold, or gives up a place: one script, because the caller may not know which it has.
-- KEYS: see queue.lua
-- ARGV: 1 owner  2 for how many more ms the lock is remembered as used by foreign clients
-- Answer: "released" (was the holder) | "left" (had a place) | "not yours"
-- Its first write is allowed even when the server is out of memory.

local owner = ARGV[1]
local holder = redis.call('GET', KEYS[1])
if not holder or string.sub(holder, 1, #owner + 1) ~= owner .. ':' then
  if redis.call('HDEL', KEYS[3], owner) == 0 then return 'not yours' end
  redis.call('LREM', KEYS[2], '1', owner)
  return 'left'
end
if redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  return 'released'
end
