-- Gives back the advisory locks that the session has, after another statement about these locks was refused. Needs
-- neither the table nor a notification, which may have been the reason for the refusal.
-- $1 keys  $2 echo
-- A lock stays taken, or given back, although its statement is refused. Therefore only pg_locks tells which locks the
-- session has.
SELECT $2::bigint AS echo, pg_backend_pid() AS pid, count(pg_advisory_unlock(due.key))
FROM unnest($1::bigint[]) AS due (key)
WHERE due.key IN (
    SELECT (l.classid::bigint << 32) + l.objid::bigint FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.pid = pg_backend_pid()
)
