-- Renews the leases of locks that their owners still hold. See acquire.lua.
-- Numbers: 1 if the lease was renewed, otherwise 0

return each({ tonumber((time())) }, #KEYS / 2, function(i)
  local name, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local ours = held(name, ARGV[4 * i - 2])
  if ours then
    redis.call('PEXPIRE', name, ARGV[4 * i - 1])
    keep(counter)
  end
  return ours and 1 or 0
end)
