-- Tries to take advisory locks, and raises the version of each lock that is taken, in the same session.
-- $1 keys  $2 names of the rows  $3 holders  $4 number of the session's mark  $5 echo
-- One row for each lock, in order: whether the lock is taken, and its new version; NULL if its row is missing or
-- locked.
-- An advisory lock is taken whatever becomes of the statement. The row is read as it is when it is locked, so the
-- version is larger than the last holder's version, which was committed before the lock was free.
WITH tried AS MATERIALIZED (
    SELECT due.*, pg_try_advisory_lock(due.key) AS taken
    FROM unnest($1::bigint[], $2::text[], $3::text[]) WITH ORDINALITY AS due (key, name, holder, number)
), ours AS MATERIALIZED (
    SELECT l.name, tried.key, tried.holder FROM tried JOIN {table} l ON l.name = tried.name WHERE tried.taken
    FOR NO KEY UPDATE OF l SKIP LOCKED
), raised AS (
    UPDATE {table} l SET
        version = greatest(l.version + 1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint) * 2048 / 2048,
        expires_at = clock_timestamp(),
        holder = ours.holder,
        number = ours.key,
        session = $4
    FROM ours WHERE l.name = ours.name
    RETURNING l.name, l.version
)
SELECT $5::bigint AS echo, pg_backend_pid() AS pid, tried.taken, raised.version
FROM tried LEFT JOIN raised ON raised.name = tried.name
ORDER BY tried.number
