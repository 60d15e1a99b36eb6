-- Adds the answers of `one` about the locks 1 to `count`. A lock on which `one` fails gets the text of the error
-- instead, behind a "-": a key of another type, for example, harms no other lock of the call.
local function each(answers, count, one)
  for i = 1, count do
    local ok, answer = pcall(one, i)
    if type(answer) == 'table' then ok, answer = false, answer.err end -- made by redis.error_reply
    answers[#answers + 1] = ok and answer or '-' .. tostring(answer)
  end
  return answers
end
