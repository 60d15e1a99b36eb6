-- Ends a hold, or gives up a place: one script, because the caller may not know which it has.
-- KEYS: see grant.lua
-- ARGV: 1 owner  2 for how many more ms the lock is remembered as used by foreign clients
-- Answer: "released" (was the holder) | "left" (had a place) | "not yours"
-- The first write of the script is allowed even when the server is out of memory.

local owner = ARGV[1]
local holder = redis.call('GET', KEYS[1])
local is_holder = holder and string.sub(holder, 1, #owner + 1) == owner .. ':'
local entry = is_holder and redis.call('LPOP', KEYS[2])
if is_holder and not entry then
  redis.call('DEL', KEYS[1])
  return 'released'
end
