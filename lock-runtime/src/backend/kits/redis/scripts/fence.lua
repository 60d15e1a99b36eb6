-- Mints a fence by a hybrid clock: the server's time (us, as a text and as a number), or one more than the last fence,
-- whichever is larger. If no number is left (a clock was wrong by a century, or the counter was set by hand), the
-- counter stays as it is, and the second result is an error to answer with, because equal tokens would not tell holders
-- apart.
local function mint(counter, now, now_number)
  local text = redis.call('SET', counter, now, 'PX', FENCE_RETENTION_MS, 'GET')
  local last = text and tonumber(text) -- a value that is no number is overwritten
  if not (last and last >= now_number) then return now end
  if last >= LAST_FENCE then
    redis.call('SET', counter, text, 'PX', FENCE_RETENTION_MS)
    return nil, redis.error_reply('FENCE ' .. text)
  end
  local fence = string.format('%.0f', last + 1)
  redis.call('SET', counter, fence, 'PX', FENCE_RETENTION_MS)
  return fence
end
