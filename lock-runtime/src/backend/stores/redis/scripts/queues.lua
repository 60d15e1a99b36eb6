-- The queues of the locks whose holders are KEYS from `first` on, and whether any of them exists: usually none does,
-- and one call shows that. ARGV[1] is the prefix; a name with a hash tag of its own keeps it (see names.rs).
local function queues_of(first)
  local queues, before = {}, ARGV[1] .. '{'
  for i = first, #KEYS do
    local holder = KEYS[i]
    queues[i - first + 1] = string.find(holder, '{', 1, true) and holder .. QUEUE or before .. holder .. '}' .. QUEUE
  end
  return queues, redis.call('EXISTS', unpack(queues)) ~= 0
end
