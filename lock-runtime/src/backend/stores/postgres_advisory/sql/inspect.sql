-- Describes the sessions that have a lock: one, or several of other programs that share it.
-- $1 see state.sql  $2 key  $3 name of the row  $4 echo
WITH {holders}
SELECT
    $4::bigint AS echo,
    {state}
FROM holders h CROSS JOIN clock LEFT JOIN {table} l ON l.name = $3
WHERE h.number = $2
