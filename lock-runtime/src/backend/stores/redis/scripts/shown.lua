-- What operators may see of the value of a holder's key: "<mode>:<signature>:<fence>", with a "!" at the end if the
-- grant was revoked, or "foreign" for the value of another client. The owner token is left out.
local function shown(value)
  local who, fence = string.match(value, '^1(%l:[%w,@%%/._-]*):%x+:%x+:(%d+!?)$')
  return who and who .. ':' .. fence or 'foreign'
end
