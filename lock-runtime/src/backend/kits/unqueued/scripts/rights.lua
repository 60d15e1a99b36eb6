-- Finds the commands that the user may not run about a lock.
-- KEYS: the keys of the lock  ARGV: 1 the channel of its releases  2 … the commands
-- Answer: {the refused commands}
-- The script changes nothing. Before Redis 7, a script cannot ask for permissions, and all commands count as permitted.

local refused = {}
local function need(command, ...)
  if redis.acl_check_cmd and refused[#refused] ~= command and not redis.acl_check_cmd(command, ...) then
    refused[#refused + 1] = command
  end
end

for i = 2, #ARGV do
  local command = ARGV[i]
  if command == 'TIME' then
    need(command)
  elseif command == 'PUBLISH' or command == 'SUBSCRIBE' then
    need(command, ARGV[1])
  else
    for _, key in ipairs(KEYS) do need(command, key) end
  end
end
return refused
