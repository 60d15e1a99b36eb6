-- Renews leases, each at its own row, in one statement.
-- $1 names  $2 owners  $3 ttls, us  $4 echo
-- One row for each lease, in order: whether the lease was renewed, whether it was the owner's before, and whether an
-- operator has revoked it. The statement
-- does not wait for a row that is locked against a renewal. A transaction with which the holder has checked in does not
-- lock the row against a renewal.
-- A statement that is held up before a row may reach the row after a later renewal, whose lease it must not shorten. A
-- lease that is longer than any renewal can have made it dates from before the server's clock was set back.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), due AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[]) WITH ORDINALITY AS due (name, owner, ttl, number)
), ours AS MATERIALIZED (
    SELECT l.name, due.ttl, due.number FROM due JOIN {table} l ON l.name = due.name AND l.owner = due.owner, clock
    WHERE l.expires_at > clock.now AND l.revoked IS DISTINCT FROM l.version
    FOR NO KEY UPDATE OF l SKIP LOCKED
), renewed AS (
    UPDATE {table} l SET expires_at = CASE
        WHEN l.expires_at < clock.now + 2 * ours.ttl * interval '1 microsecond'
        THEN greatest(l.expires_at, clock.now + ours.ttl * interval '1 microsecond')
        ELSE clock.now + ours.ttl * interval '1 microsecond'
    END
    FROM ours, clock WHERE l.name = ours.name
    RETURNING ours.number
)
SELECT
    $4::bigint AS echo,
    renewed.number IS NOT NULL AS renewed,
    EXISTS (
        SELECT FROM {table} l, clock WHERE l.name = due.name AND l.owner = due.owner AND l.expires_at > clock.now
    ) AS was_ours,
    EXISTS (
        SELECT FROM {table} l, clock
        WHERE l.name = due.name AND l.owner = due.owner AND l.expires_at > clock.now AND l.revoked = l.version
    ) AS is_revoked
FROM due LEFT JOIN renewed ON renewed.number = due.number
ORDER BY due.number
