if not is_holder then
  local place = owner
  if redis.call('HDEL', places, owner) == 0 then
    place = near(owner)
    if not place then return 'not yours' end
  end
  redis.call('LREM', queue, '1', place)
  return 'left'
end

if opens then
  redis.call('LPUSH', queue, entry)
  extend() -- if it was the last entry, the list is a new one
  redis.call('DEL', key)
  local first = head()
  if first then
    redis.call('SET', open(), '1', 'PX', length)
    redis.call('PUBLISH', first.inbox, 'free ' .. first.number .. ' ' .. length)
  end
elseif not hand_over(ARGV[2]) then
  redis.call('DEL', key)
end
return 'released'
