-- Shows the holders of locks. The names are no KEYS, so that a name that this user may not read harms no other name of the
-- call.
-- ARGV: for each lock 1 name  2 the channel of its releases
-- Answer: for each lock {{field, value, field, value}, pttl ms, number of clients that wait or -1}, nil if the lock is free,
-- or the text of an error behind a "-"
--
-- A hash of more fields than a lock has is not read, because it may be large.

local answers = {}
for i = 1, #ARGV / 2 do
  local name = ARGV[2 * i - 1]
  local fields = redis.pcall('HLEN', name)
  if type(fields) == 'number' and fields > 0 then
    fields = fields <= 2 and redis.pcall('HGETALL', name) or { err = 'WRONGTYPE more fields than a lock has' }
  end
  if fields == 0 then
    answers[i] = false
  elseif fields.err then
    answers[i] = '-' .. fields.err
  else
    local waiting = redis.pcall('PUBSUB', 'NUMSUB', ARGV[2 * i])
    answers[i] = { fields, redis.call('PTTL', name), waiting[2] or -1 }
  end
end
return answers
