-- Gives advisory locks back, and notifies the waiters. The notifications are sent when the locks are free.
-- $1 keys  $2 names of the rows  $3 echo
-- One row for each lock, in order: whether the lock was held, and whether others wait. The statement does not see a
-- waiter that begins at the same moment; such a waiter asks again soon.
WITH due AS MATERIALIZED (
    SELECT * FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS due (key, name, number)
), freed AS MATERIALIZED (
    SELECT due.*, pg_advisory_unlock(due.key) AS was_held FROM due
)
SELECT
    $3::bigint AS echo,
    pg_backend_pid() AS pid,
    freed.was_held,
    coalesce(l.wanted_until > clock_timestamp(), false) AS wanted,
    CASE WHEN l.wanted_until > clock_timestamp() THEN pg_notify('{channel}', {lock})::text END AS told
FROM freed LEFT JOIN {table} l ON l.name = freed.name
ORDER BY freed.number
