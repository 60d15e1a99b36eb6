-- Asks to be notified when locks are given back. The statement does not wait for a locked row.
-- $1 names of the rows  $2 how long to be notified, us  $3 waiters  $4 echo
WITH held AS MATERIALIZED (
    SELECT l.name, due.holder FROM unnest($1::text[], $3::text[]) AS due (name, holder) JOIN {table} l ON l.name = due.name
    WHERE l.wanted_until < clock_timestamp() + $2 * interval '1 microsecond' / 2
    FOR NO KEY UPDATE OF l SKIP LOCKED
), marked AS (
    UPDATE {table} l SET
        wanted_until = clock_timestamp() + $2 * interval '1 microsecond',
        next_holder = held.holder
    FROM held WHERE l.name = held.name
    RETURNING 1
)
SELECT $4::bigint AS echo, pg_backend_pid() AS pid, count(*) FROM marked
