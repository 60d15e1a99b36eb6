-- Finds the commands of the other scripts that the user may not run under a prefix. Without this check, a script could
-- fail after its first write.
-- KEYS: 1 fence  2 queues  ARGV: 1 the channel of this process
-- Answer: {time us, {the refused commands}}
-- The script changes nothing. Before Redis 7, a script cannot ask for permissions: only PUBLISH, by an empty message
-- that every receiver ignores, and TIME are tried, and the other commands count as permitted.

local refused = {}
local function need(command, ...)
  if refused[#refused] == command then return end
  local may
  if redis.acl_check_cmd then
    may = redis.acl_check_cmd(command, ...)
  else
    may = command ~= 'PUBLISH' or type(redis.pcall(command, ...)) == 'number'
  end
  if not may then refused[#refused + 1] = command end
end

local key, queues = KEYS[1], KEYS[2]
need('DEL', key)
need('EXISTS', key)
need('EXISTS', queues)
need('GET', key)
need('HDEL', key, 'field')
need('HGET', key, 'field')
need('HSET', key, 'field', 'value')
need('LINDEX', key, '0')
need('LPOP', key)
need('LPOS', key, 'element')
need('LPUSH', key, 'element')
need('LRANGE', key, '0', '1')
need('LREM', key, '1', 'element')
need('LSET', key, '0', 'element')
need('MGET', key)
need('PEXPIRE', key, '1')
need('PTTL', key)
need('PUBLISH', ARGV[1], '')
need('RPUSH', key, 'element')
need('SET', key, 'value')
need('SET', queues, 'value')
need('TIME')
local t = redis.pcall('TIME')
if t.err then
  if refused[#refused] ~= 'TIME' then refused[#refused + 1] = 'TIME' end
  return { '0', refused }
end
return { t[1] .. string.sub('00000' .. t[2], -6), refused }
