-- Creates the rows of locks that the session has taken.
-- $1 keys  $2 names of the rows  $3 holders  $4 number of the session's mark  $5 echo
-- One row for each name, in order: the version of the new row; NULL if there is a row by now. If another transaction
-- has inserted a row of the same name, the statement waits for the end of that transaction, but only for a moment,
-- because all locks of the session wait.
WITH created AS (
    INSERT INTO {table} (name, version, expires_at, holder, number, session)
    SELECT
        due.name, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, clock_timestamp(),
        due.holder || left(set_config('lock_timeout', '10ms', true), 0), due.key, $4
    FROM unnest($1::bigint[], $2::text[], $3::text[]) AS due (key, name, holder)
    ON CONFLICT (name) DO NOTHING
    RETURNING name, version
)
SELECT $5::bigint AS echo, pg_backend_pid() AS pid, created.version
FROM unnest($2::text[]) WITH ORDINALITY AS due (name, number) LEFT JOIN created ON created.name = due.name
ORDER BY due.number
