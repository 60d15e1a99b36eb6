-- Revokes a grant on this node: the lease is not renewed any more, and the holder is notified.
-- KEYS: 1 holder  2 counter, as in acquire.lua
-- ARGV: 1 limit us  2 owner  3 the largest known fence of the grant, us  4 the channel of revocations
-- Answer: {time us, 1 if the owner holds the lock, otherwise 0, or an error as in each.lua}; {time us} alone if the limit
-- had passed and nothing was done
--
-- The counter is raised above the grant, so that this node does not take the lease again from its owner (see join.lua)
-- after the lease has ended here. If this node missed the grant's fence, a renewal has told only the counter.

local now = time()
if tonumber(now) > tonumber(ARGV[1]) then return { tonumber(now) } end
return each({ tonumber(now) }, 1, function()
  local fence, rest = held(KEYS[1], ARGV[2])
  if not fence then return 0 end
  if not is_revoked(rest) then
    -- This command changes nothing, but is allowed when the server is out of memory, and so is each write after it.
    redis.pcall('HDEL', KEYS[1], '!')
    raise(KEYS[2], above(fence, math.max(tonumber(ARGV[3]), last_of(KEYS[2]))))
    redis.call('SET', KEYS[1], ARGV[2] .. ':' .. fence .. rest .. REVOKED, 'KEEPTTL')
  end
  -- A user without the permission to publish revokes all the same: the holder learns of it at its next renewal.
  redis.pcall('PUBLISH', ARGV[4], KEYS[1])
  return 1
end)
