-- Takes locks, and numbers the grants. All scripts have the same keys and arguments:
-- KEYS: for each lock 1 name  hash owner -> number of holds, and RECORD -> "<fence>:<time us>:<signature>" of a client of
--       this library; Java's clients read their own fields alone  2 counter  string the last fence
-- ARGV: 1 limit us  then for each lock owner, ttl ms, number, signature
-- Answer: {time us, for each lock a number, or an error as in each.lua}; {time us} alone if the limit had passed and
-- nothing was done
--
-- A repeated request of the holder is granted again, and counts no further hold.
-- Numbers: twice the fence of a lock that was taken, and 1 more if clients wait for the lock, or may; -2 * (pttl + 2)
-- for a refused lock

local now = time()
if tonumber(now) > tonumber(ARGV[1]) then return { tonumber(now) } end
return each({ tonumber(now) }, #KEYS / 2, function(i)
  local name, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local owner, ttl, signature = ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i + 1]
  if redis.call('EXISTS', name) == 0 or redis.call('HEXISTS', name, owner) == 1 then
    local fence, none_left = mint(counter, now, tonumber(now))
    if not fence then return none_left end
    local record = string.format('%.0f:%s:%s', tonumber(fence), now, signature)
    redis.call('HSET', name, owner, 1, RECORD, record)
    local ends = redis.pcall('PEXPIRE', name, ttl)
    if type(ends) == 'table' then -- this user may not set an expiry, and the lock would never end
      redis.call('DEL', name)
      return ends
    end
    local waiting = redis.pcall('PUBSUB', 'NUMSUB', channel(name))
    return 2 * tonumber(fence) + (waiting[2] == 0 and 0 or 1)
  end
  return -2 * (left(name) + 2)
end)
