-- Records the number of holds of each owner; the number is set, not added, so that a repeated or late call changes
-- nothing. See acquire.lua.
-- Numbers: 1 if the owner holds the lock, otherwise 0

return each({ tonumber((time())) }, #KEYS / 2, function(i)
  local name, owner = KEYS[2 * i - 1], ARGV[4 * i - 2]
  local ours = held(name, owner)
  if ours then redis.call('HSET', name, owner, ARGV[4 * i]) end
  return ours and 1 or 0
end)
