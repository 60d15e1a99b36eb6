-- Takes those of many locks of one domain that are free and have no waiters.
-- KEYS: 1 fence  2 queues  then the holders, then their queues
-- ARGV: 1 limit us  2 the common beginning of all owners  then for each lock the rest of its owner, then for each its
--       ttl ms, or one ttl for all
-- Answer: {time us, fence, number, …}. The fence is that of all granted locks; 0 if none was granted. The numbers (from
-- 1) are those of the other locks, which must be asked for alone. {time us} alone: the limit had passed, and nothing
-- was done.
-- One fence serves all grants, because only fences of the same lock are compared. The fence is minted for the first
-- lock that is free and has no waiters; without such a lock, nothing is written.

local t = redis.call('TIME')
local now = t[1] .. string.sub('00000' .. t[2], -6)
local now_number = tonumber(now)
if now_number > tonumber(ARGV[1]) then return { now } end

local keys, arguments = KEYS, ARGV
local count = (#keys - 2) / 2
local has_queues = redis.call('EXISTS', keys[2]) == 1 and redis.call('EXISTS', unpack(keys, count + 3)) ~= 0
local process, common_ttl, suffix = arguments[2], arguments[count + 3], nil
local answers = { now, 0 }
for i = 1, count do
  local set
  local passes = not (has_queues and redis.call('EXISTS', keys[count + 2 + i]) == 1)
  -- After the first grant, SET by itself finds out whether a lock is free.
  if passes and (suffix or redis.call('EXISTS', keys[i + 2]) == 0) then
    if not suffix then
      local fence, refused = mint(keys[1], now, now_number)
      if refused then return refused end
      answers[2], suffix = fence, ':' .. fence
    end
    local value, ttl = process .. arguments[i + 2] .. suffix, arguments[count + 2 + i] or common_ttl
    -- A failure recurs, with its reason, when the lock is asked for alone.
    set = redis.pcall('SET', keys[i + 2], value, 'NX', 'PX', ttl)
  end
  if not (set and set.ok) then answers[#answers + 1] = i end
end
return answers
