-- Gives advisory locks back that the session has, where another statement about them was refused. It needs neither the table
-- nor a notification, which may have been the reason.
-- $1 keys  $2 echo
-- A lock stays taken, or given back, although its statement is refused. So only pg_locks tells which of them the session has.
SELECT $2::bigint AS echo, pg_backend_pid() AS pid, count(pg_advisory_unlock(due.key))
FROM unnest($1::bigint[]) AS due (key)
WHERE due.key IN (
    SELECT (l.classid::bigint << 32) + l.objid::bigint FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.pid = pg_backend_pid()
)
