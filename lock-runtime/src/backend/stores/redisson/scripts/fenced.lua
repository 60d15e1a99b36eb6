-- Numbers a grant as Redisson's RFencedLock does. Its counter never expires.
local function mint(counter)
  return redis.call('INCR', counter)
end
local function keep() end
