-- Numbers a grant by the counter of Redisson's RFencedLock. The counter never expires, and other clients and operators
-- set it. A fence that does not fit, with the answer's last bit, into a Lua number is refused, because equal tokens
-- would not tell holders apart.
local function mint(counter)
  local fence = redis.pcall('INCR', counter)
  if type(fence) == 'number' and fence > 0 and fence <= LAST_FENCE then return fence end
  local no_number = type(fence) == 'number' or string.find(fence.err, 'not an integer', 1, true)
    or string.find(fence.err, 'overflow', 1, true)
  if not no_number then return nil, fence end
  return nil, redis.error_reply('FENCE ' .. redis.call('GET', counter) .. ' ' .. counter)
end
local function keep() end
