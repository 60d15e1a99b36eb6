-- Frees a lock on this node although its holder may rely on the lock, and notifies the holder and the waiters.
-- KEYS: 1 holder  2 counter, as in acquire.lua
-- ARGV: 1 limit us  2 owner, or the whole text of a holder that is no client of this library  3 the largest known fence of
-- the grant, us; empty for another library's client  4 the channel of revocations
-- Answer: {time us, 1 if the lock was freed, 0 if this holder did not have it, or an error as in each.lua}; {time us}
-- alone if the limit had passed and nothing was done
--
-- The counter is raised above the grant, so that this node does not take the lease again from its owner (see join.lua).

local now = time()
if tonumber(now) > tonumber(ARGV[1]) then return { tonumber(now) } end
return each({ tonumber(now) }, 1, function()
  local fence
  if ARGV[3] == '' then
    if redis.call('GET', KEYS[1]) ~= ARGV[2] then return 0 end
  else
    fence = held(KEYS[1], ARGV[2])
    if not fence then
      -- A late Join must not give this node's lease to the owner. A later grant has a larger fence, and keeps its counter.
      if last_of(KEYS[2]) <= tonumber(ARGV[3]) then pcall(raise, KEYS[2], above(ARGV[3], ARGV[3])) end
      return 0
    end
  end
  redis.call('DEL', KEYS[1])
  if fence then pcall(raise, KEYS[2], above(fence, ARGV[3])) end -- may fail if the server is out of memory
  redis.pcall('PUBLISH', channel(KEYS[2]), '')
  redis.pcall('PUBLISH', ARGV[4], KEYS[1])
  return 1
end)
