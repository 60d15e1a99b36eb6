-- Takes a lock from its holder.
-- KEYS: 1 fence  2 queues  3 holder  4 queue  5 places  6 open; see grant.lua
-- ARGV: 1 "mark" (the grant is not renewed any more) | "free" (the lock is free at once) | "free foreign" (as "free",
--         but of a holder that is another client) | "look" (for "free foreign"; changes nothing)
--       2 with "mark" and "free": the fence of the grant; with "free foreign": the digest in the answer to "look", a blank,
--         and a limit, us: another client may have the same value in its next hold
--       3 the channel of an inbox under the caller's prefix, without its id
-- Answer: "revoked" | "not held" (by this grant) | "late" (nothing was done) | to "look": a digest of the foreign holder's
-- value, a blank, and the time, us; "not held" without such a holder
-- The grant is compared in the step that changes it, so a late or repeated request never reaches a later grant.

local how, which = ARGV[1], ARGV[2]

-- Only a primary may say this: a replica may lack what its primary has.
local function not_held() return replica_error(KEYS[3], '~') or 'not held' end

local holder = redis.call('GET', KEYS[3])
if not holder then return not_held() end
local inbox_id, fence, mark = string.match(holder, '^1%l:[^:]*:(%x+):%x+:(%d+)(!?)$')
-- No grant has such a fence; the value is that of another client.
if inbox_id and tonumber(fence) > LAST_FENCE then inbox_id, fence = nil, nil end
local time = redis.call('TIME')
local now_us = time[1] .. string.sub('00000' .. time[2], -6)
if how == 'look' then return inbox_id and not_held() or redis.sha1hex(holder) .. ' ' .. now_us end
local is_meant
if how == 'free foreign' then
  local digest, limit = string.match(which, '^(%x+) (%d+)$')
  if tonumber(now_us) > tonumber(limit) then return 'late' end
  is_meant = not inbox_id and redis.sha1hex(holder) == digest
else
  is_meant = fence == which
end
if not is_meant then return not_held() end

--@ fence.lua
--@ grant.lua
--@ queue.lua

if how ~= 'mark' then
  if not hand_over(0) then redis.call('DEL', key) end
elseif mark == '' then
  -- This command changes nothing, but is allowed when the server is out of memory, and so is each write after it.
  redis.pcall('HDEL', key, '!')
  redis.call('SET', key, holder .. '!', 'KEEPTTL')
end
-- A hint to renew at once. A value that only looks like ours may name a forbidden channel.
if inbox_id then redis.pcall('PUBLISH', ARGV[3] .. inbox_id, 'revoked ' .. fence .. ' ' .. key) end
return 'revoked'
