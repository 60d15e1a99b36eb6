-- Takes locks, and numbers the grants. All scripts have the same keys and arguments:
-- KEYS: for each lock 1 name  hash owner -> number of holds  2 counter  string the last fence
-- ARGV: 1 limit us  then for each lock owner, ttl ms, number
-- Answer: {time us, for each lock a number}; {time us} alone if the limit had passed: nothing was done
--
-- A repeated request of the holder is granted again, and counts no further hold.
-- Numbers: twice the fence of a lock that was taken, and 1 more if clients wait for it, or may; for one that was refused
-- -2 * (its pttl + 2)

local now = time()
if tonumber(now) > tonumber(ARGV[1]) then return { tonumber(now) } end
local answers = { tonumber(now) }
for i = 1, #KEYS / 2 do
  local name, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local owner, ttl = ARGV[3 * i - 1], ARGV[3 * i]
  if redis.call('EXISTS', name) == 0 or held(name, owner) then
    local fence, none_left = mint(counter, now)
    if not fence then return none_left end
    redis.call('HSET', name, owner, 1)
    redis.call('PEXPIRE', name, ttl)
    local waiting = redis.pcall('PUBSUB', 'NUMSUB', channel(name))
    answers[i + 1] = 2 * tonumber(fence) + (waiting[2] == 0 and 0 or 1)
  else
    answers[i + 1] = -2 * (redis.call('PTTL', name) + 2)
  end
end
return answers
