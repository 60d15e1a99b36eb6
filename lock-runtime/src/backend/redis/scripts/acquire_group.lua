-- Takes many locks of one prefix, those that are free and that nobody waits for.
-- KEYS: 1 fence  2… the holders
-- ARGV: 1 prefix  2 format  then for each lock: owner, ttl ms
-- Answer: the fence, then for each lock 1 (granted with that fence) or 0 (the way through the queue must be taken)
-- One fence serves all: fences are compared between grants of the same lock only.

local t = redis.call('TIME')
local fence = t[1] .. string.format('%06d', t[2])
local last = redis.call('SET', KEYS[1], fence, 'GET')
if last and tonumber(last) >= tonumber(fence) then
  fence = string.format('%.0f', tonumber(last) + 1)
  redis.call('SET', KEYS[1], fence)
end

local suffix = ':' .. fence
local before, after, own_tag = ARGV[1] .. '{', '}:~' .. ARGV[2] .. ':queue', ':~' .. ARGV[2] .. ':queue'
local answers = { fence }
for i = 2, #KEYS do
  local holder = KEYS[i]
  -- See names.rs: a name with a hash tag of its own keeps it.
  local queue = string.find(holder, '{', 1, true) and holder .. own_tag or before .. holder .. after
  answers[i] = 0
  if redis.call('EXISTS', queue) == 0 then
    -- What fails here fails again on the other way, which says why.
    local set = redis.pcall('SET', holder, ARGV[2 * i - 1] .. suffix, 'NX', 'PX', ARGV[2 * i])
    if set and set.ok then answers[i] = 1 end
  end
end
return answers
