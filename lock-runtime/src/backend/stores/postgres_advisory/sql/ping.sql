-- Keeps the session alive.
-- $1 echo
SELECT $1::bigint AS echo, pg_backend_pid() AS pid
