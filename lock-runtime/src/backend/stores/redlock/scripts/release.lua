-- Releases locks that their owners hold on this node, and notifies the waiting clients of this library if NOTIFIES is
-- set. See acquire.lua.
-- Numbers: 1 if the lock was released, 0 if the owner did not hold it

return each({ tonumber((time())) }, #KEYS / 2, function(i)
  local holder, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local ours = held(holder, ARGV[4 * i - 2])
  if ours then
    redis.call('DEL', holder)
    -- A user without the permission to publish releases all the same, because waiters ask from time to time anyway.
    if NOTIFIES then redis.pcall('PUBLISH', channel(counter), '') end
  end
  return ours and 1 or 0
end)
