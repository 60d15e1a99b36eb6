-- Gives this node the leases that it lacks and that a majority of the other nodes has just renewed. A lease is not
-- given if this node has made a newer grant: then the caller's hold may be over without the caller's knowledge. See
-- acquire.lua.
-- Numbers: 1 if the owner holds the lock now, otherwise 0

local now = time()
if tonumber(now) > tonumber(ARGV[1]) then return { tonumber(now) } end
return each({ tonumber(now) }, #KEYS / 2, function(i)
  local holder, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local owner, ttl, fence, signature = ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i], ARGV[4 * i + 1]
  local ours = held(holder, owner)
  if not ours and last_of(counter) <= tonumber(fence) and redis.call('EXISTS', holder) == 0 then
    raise(counter, fence)
    redis.call('SET', holder, table.concat({ owner, fence, now, signature }, ':'), 'PX', ttl)
    ours = fence
  end
  return ours and 1 or 0
end)
