-- Frees a lock although its holder may rely on the lock, and notifies the holder and the waiters, as Redisson's `forceUnlock`
-- does.
-- KEYS: 1 name  2 counter, as in acquire.lua
-- ARGV: 1 limit us  2 owner  3 the fence of the grant; empty for a client of another library  4 the channel of revocations
-- Answer: {time us, 1 if the lock was freed, 0 if this holder did not have it, or an error as in each.lua}; {time us}
-- alone if the limit had passed and nothing was done

local now = time()
if tonumber(now) > tonumber(ARGV[1]) then return { tonumber(now) } end
return each({ tonumber(now) }, 1, function()
  local is_ours = redis.call('HEXISTS', KEYS[1], RECORD) == 1
  if is_ours ~= (ARGV[3] ~= '') or not held(KEYS[1], ARGV[2]) then return 0 end
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', channel(KEYS[1]), '0')
  redis.pcall('PUBLISH', ARGV[4], KEYS[1])
  return 1
end)
