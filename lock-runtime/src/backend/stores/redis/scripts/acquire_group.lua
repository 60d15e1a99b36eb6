-- Takes each of many locks under one prefix that is free and has no waiters.
-- KEYS: 1 fence  2… the holders
-- ARGV: 1 prefix  2 limit us  3 the beginning of all owners  then for each lock the rest of its owner, ttl ms
-- Answer: {time us, fence, …}: the fence of all granted locks, 0 if none was granted, then the numbers (from 1) of the
-- other locks, which must be asked for alone; {time us} alone if the limit had passed: nothing was done
-- One fence serves all grants, because only fences of the same lock are compared. Without a grant nothing is written.

local t = redis.call('TIME')
local now = t[1] .. string.sub('00000' .. t[2], -6)
if tonumber(now) > tonumber(ARGV[2]) then return { now } end

local process, suffix = ARGV[3], nil
local queues = queues_of()
local answers = { now, 0 }
for i = 2, #KEYS do
  local set
  local passes = not (queues and redis.call('EXISTS', queues[i]) == 1)
  -- After the first grant, SET by itself finds out whether a lock is free.
  if passes and (suffix or redis.call('EXISTS', KEYS[i]) == 0) then
    if not suffix then
      local fence, refused = mint(KEYS[1], now)
      if refused then return refused end
      answers[2], suffix = fence, ':' .. fence
    end
    -- A failure recurs, with its reason, when the lock is asked for alone.
    set = redis.pcall('SET', KEYS[i], process .. ARGV[2 * i] .. suffix, 'NX', 'PX', ARGV[2 * i + 1])
  end
  if not (set and set.ok) then answers[#answers + 1] = i - 1 end
end
return answers
