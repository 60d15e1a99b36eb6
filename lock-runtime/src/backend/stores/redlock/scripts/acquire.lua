-- Takes locks on this node, and mints their fences. All scripts of a node have the same keys and arguments:
-- KEYS: for each lock 1 holder  string "<owner>:<fence>:<time us>:<signature>", and ":revoked" once it is revoked
--       2 counter  string the last fence
-- ARGV: 1 limit us  then for each lock owner, ttl ms, fence us, signature
-- Answer: {time us, for each lock a number, or an error as in each.lua}; {time us} alone if the limit had passed and
-- nothing was done
--
-- The fence in the arguments is a proposal, a little ahead of this node's time, so that nodes agree on the fence. A
-- node that has minted the proposal or a larger number mints the next number. No number is lower than the node's time,
-- so that a node that has lost its counter goes on above the lost number; and no proposal makes a number higher than
-- the time by more than AHEAD_US, so that the time reaches the number before a node without its data votes.
-- Numbers: twice the fence of a lock that was taken, or is held by this owner already, and 1 more if clients of this
-- library wait for the lock, or may; for a refused lock -2 * (its pttl + 2), less 1 if its holder is a client of
-- another library

local now = time()
if tonumber(now) > tonumber(ARGV[1]) then return { tonumber(now) } end

local function granted(fence, counter)
  local waiting = redis.pcall('PUBSUB', 'NUMSUB', channel(counter))
  return 2 * fence + (waiting[2] == 0 and 0 or 1)
end

return each({ tonumber(now) }, #KEYS / 2, function(i)
  local holder, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local owner, ttl, proposal, signature = ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i], ARGV[4 * i + 1]
  local present = redis.call('GET', holder)
  if not present then
    local fence = math.max(last_of(counter) + 1, tonumber(now), math.min(tonumber(proposal), tonumber(now) + AHEAD_US))
    local text = string.format('%.0f', fence)
    if fence > LAST_FENCE then return redis.error_reply('FENCE ' .. text) end
    redis.call('SET', counter, text, 'PX', FENCE_RETENTION_MS)
    redis.call('SET', holder, table.concat({ owner, text, now, signature }, ':'), 'PX', ttl)
    return granted(fence, counter)
  elseif string.sub(present, 1, #owner + 1) == owner .. ':' then
    return granted(tonumber(string.match(present, '^%d+', #owner + 2)), counter)
  end
  local foreign = string.sub(present, 1, #OWNERS) ~= OWNERS and 1 or 0
  return -2 * (left(holder) + 2) - foreign
end)
