-- Releases locks that their owners hold on this node, and NOTIFIES the waiting clients of this library, or not. See
-- acquire.lua.
-- Numbers: 1 if the lock was released, 0 if the owner did not hold it

local answers = { tonumber((time())) }
for i = 1, #KEYS / 2 do
  local holder, counter = KEYS[2 * i - 1], KEYS[2 * i]
  local ours = held(holder, ARGV[3 * i - 1])
  if ours then
    redis.call('DEL', holder)
    -- Waiters look from time to time anyway, so a user without this permission releases all the same.
    if NOTIFIES then redis.pcall('PUBLISH', channel(counter), '') end
  end
  answers[i + 1] = ours and 1 or 0
end
return answers
