-- Takes those of many locks of one prefix that are free and have no waiters.
-- KEYS: 1 fence  2… the holders
-- ARGV: 1 prefix  2 limit us  3 the beginning of all owners  then for each lock the rest of its owner, ttl ms
-- Answer: {time us, fence, …}: the fence of all that were granted, 0 if none was, then the numbers (from 1) of those
-- that were not, and must be asked for alone; {time us} alone if the limit had passed: nothing was done
-- One fence serves all: fences are compared between grants of the same lock only. Without a grant nothing is written.

local t = redis.call('TIME')
local now = t[1] .. string.sub('00000' .. t[2], -6)
if tonumber(now) > tonumber(ARGV[2]) then return { now } end

local process, suffix = ARGV[3], nil
local queues = queues_of()
local answers = { now, 0 }
for i = 2, #KEYS do
  local set
  local passes = not (queues and redis.call('EXISTS', queues[i]) == 1)
  -- After the first grant, SET finds out by itself.
  if passes and (suffix or redis.call('EXISTS', KEYS[i]) == 0) then
    if not suffix then
      local fence, refused = mint(KEYS[1], now)
      if refused then return refused end
      answers[2], suffix = fence, ':' .. fence
    end
    -- A failure here recurs when the lock is asked for alone, with the reason.
    set = redis.pcall('SET', KEYS[i], process .. ARGV[2 * i] .. suffix, 'NX', 'PX', ARGV[2 * i + 1])
  end
  if not (set and set.ok) then answers[#answers + 1] = i - 1 end
end
return answers
