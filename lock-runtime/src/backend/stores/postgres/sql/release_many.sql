-- Ends holds, each in its own row, in one statement, and grants each lock to its next holder, or notifies the waiters.
-- Withdraws the places of owners that are next holders.
-- $1 names  $2 owners  $3 secrets of the owners, or NULL  $4 echo
-- One row for each owner, in order: if its hold was ended, whether the lease was still valid; otherwise, whether the
-- owner holds the lock or is the next holder, in a row that is locked. See release.sql, hand_over.sql and grant.sql.
WITH due AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::uuid[]) WITH ORDINALITY AS due (name, owner, secret, number)
), ours AS MATERIALIZED (
    SELECT l.name, due.number, due.secret FROM due JOIN {table} l ON l.name = due.name AND l.owner = due.owner
    FOR UPDATE OF l SKIP LOCKED
), freed AS (
    UPDATE {table} l SET
        {grant}
    FROM ours WHERE l.name = ours.name
    RETURNING
        ours.number,
        l.owner IS NOT NULL OR l.expires_at > clock_timestamp() AS was_valid,
        CASE
            WHEN l.owner IS NOT NULL THEN pg_notify('{channel}', concat_ws(' ', {lock}, l.version, ours.secret))::text
            WHEN l.wanted_until > clock_timestamp() THEN pg_notify('{channel}', {lock})::text
        END AS told
), nexts AS MATERIALIZED (
    SELECT l.name, due.number FROM due JOIN {table} l ON l.name = due.name AND l.next_owner = due.owner
    WHERE l.next_until > clock_timestamp()
    FOR NO KEY UPDATE OF l SKIP LOCKED
), withdrawn AS (
    UPDATE {table} l SET next_until = '-infinity' FROM nexts WHERE l.name = nexts.name
    RETURNING nexts.number
)
SELECT
    $4::bigint AS echo,
    freed.was_valid,
    withdrawn.number IS NULL AND EXISTS (
        SELECT FROM {table} l
        WHERE l.name = due.name
            AND (l.owner = due.owner OR l.next_owner = due.owner AND l.next_until > clock_timestamp())
    ) AS was_ours
FROM due LEFT JOIN freed ON freed.number = due.number LEFT JOIN withdrawn ON withdrawn.number = due.number
ORDER BY due.number
