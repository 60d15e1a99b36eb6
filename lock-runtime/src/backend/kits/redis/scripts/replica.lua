-- The error of a replica about a write; nil on a primary. A replica may lack what its primary has, so that only a primary
-- may answer that a lease is over. `field` must be no field of a hash under `key`: then the write changes nothing.
local function replica_error(key, field)
  local answer = redis.pcall('HDEL', key, field)
  if type(answer) == 'table' and string.find(answer.err, 'READONLY', 1, true) then return answer end
end
