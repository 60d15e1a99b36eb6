-- Takes many locks of one prefix, those that are free and that nobody waits for.
-- KEYS: 1 fence  2… the holders
-- ARGV: 1 prefix  2 format  then for each lock: owner, ttl ms
-- Answer: for each lock its fence, or "" where the way through the queue must be taken. Fences of those are lost, which
-- does no harm.

local count = #KEYS - 1
local t = redis.call('TIME')
local first = t[1] * 1000000 + t[2]
local last = tonumber(redis.call('SET', KEYS[1], string.format('%.0f', first + count - 1), 'GET') or '0')
if last >= first then
  first = last + 1
  redis.call('SET', KEYS[1], string.format('%.0f', first + count - 1))
end

local answers = {}
for i = 1, count do
  local holder = KEYS[i + 1]
  -- See names.rs: a name with a hash tag of its own keeps it.
  local base = string.find(holder, '{', 1, true) and holder or ARGV[1] .. '{' .. holder .. '}'
  local fence = ''
  if redis.call('EXISTS', base .. ':~' .. ARGV[2] .. ':queue') == 0 then
    local minted = string.format('%.0f', first + i - 1)
    -- What fails here fails again on the other way, which says why.
    local set = redis.pcall('SET', holder, ARGV[2 * i + 1] .. ':' .. minted, 'NX', 'PX', ARGV[2 * i + 2])
    if set and set.ok then fence = minted end
  end
  answers[i] = fence
end
return answers
