-- The queues of the locks whose holders are KEYS from the second on; nil if none of these locks has a queue. One call
-- shows that none has a queue where no lock with this counter of fences, KEYS[1], has one (see grant.lua). ARGV[1] is
-- the prefix; a name with a hash tag of its own keeps the tag (see format.rs).
local function queues_of()
  if redis.call('EXISTS', string.sub(KEYS[1], 1, -6) .. 'queues') == 0 then return nil end
  local queues, before = {}, ARGV[1] .. '{'
  for i = 2, #KEYS do
    local holder = KEYS[i]
    queues[i] = string.find(holder, '{', 1, true) and holder .. QUEUE or before .. holder .. '}' .. QUEUE
  end
  if redis.call('EXISTS', unpack(queues, 2, #KEYS)) ~= 0 then return queues end
end
