-- Releases locks, whatever number of holds their owners have, and notifies the waiters. The waiters of a free lock are
-- notified, too, because the client that deleted the lock may not have notified them. See acquire.lua.
-- Numbers: 1 if the lock was released, 0 if the owner did not hold it

return each({ tonumber((time())) }, #KEYS / 2, function(i)
  local name = KEYS[2 * i - 1]
  local ours = held(name, ARGV[4 * i - 2])
  if ours then redis.call('DEL', name) end
  if redis.call('EXISTS', name) == 0 then redis.call('PUBLISH', channel(name), '0') end
  return ours and 1 or 0
end)
