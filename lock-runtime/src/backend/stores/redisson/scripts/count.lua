-- Records how often owners hold their locks: the number itself, so that a repeated or late call changes nothing. See
-- acquire.lua.
-- Numbers: 1 if the owner holds the lock, otherwise 0

local answers = { tonumber((time())) }
for i = 1, #KEYS / 2 do
  local name, owner = KEYS[2 * i - 1], ARGV[3 * i - 1]
  local ours = held(name, owner)
  if ours then redis.call('HSET', name, owner, ARGV[3 * i + 1]) end
  answers[i + 1] = ours and 1 or 0
end
return answers
