-- Raises the counters of locks to the fences of their grants, where the owner still holds the lock by the same grant,
-- so that every later fence of this node is larger. A hold with a larger fence than the grant's began later, by a
-- repeated request, and another client may have held the lock in between. See acquire.lua.
-- Numbers: 1 if the owner holds the lock, otherwise 0

return each({ tonumber((time())) }, #KEYS / 2, function(i)
  local holder, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local owner, fence = ARGV[4 * i - 2], ARGV[4 * i]
  local with, rest = held(holder, owner)
  local ours = with and tonumber(with) <= tonumber(fence)
  if ours then
    raise(counter, fence)
    redis.call('SET', holder, owner .. ':' .. fence .. rest, 'KEEPTTL')
  end
  return ours and 1 or 0
end)
