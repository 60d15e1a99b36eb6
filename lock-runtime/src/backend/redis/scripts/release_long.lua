-- While many queue for a lock it is never free, and a client that does not queue, because it knows only `SET NX`, would
-- never get it. So now and then it is left free, and the first in the queue, who is told, asks for it a little later:
-- once in OPEN_EVERY_US of holding, on average, and at most every other time; the low digits of the time serve as
-- dice.
local held_us = math.min(now - string.sub(holder, #owner + 2), OPEN_EVERY_US / 2)
if now % OPEN_EVERY_US < held_us then
  redis.call('DEL', KEYS[1])
  local first = head()
  if first then redis.call('PUBLISH', first.inbox, 'free ' .. first.number) end
elseif not hand_over() then
  redis.call('DEL', KEYS[1])
end
return 'released'
