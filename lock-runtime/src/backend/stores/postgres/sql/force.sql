-- Ends a hold by force, and grants the lock to the next holder, or notifies the waiters, like hand_over.sql without a
-- secret. The answer has the columns of revoke.sql.
-- $1 name  $2 version  $3 echo
-- While a transaction with which the holder has checked in is open, the row stays as it is (FOR UPDATE conflicts with the
-- check-in).
WITH ours AS MATERIALIZED (
    SELECT l.name FROM {table} l
    WHERE l.name = $1 AND l.version = $2 AND l.owner IS NOT NULL AND l.expires_at > clock_timestamp()
    FOR UPDATE OF l SKIP LOCKED
), freed AS (
    UPDATE {table} l SET
        {grant},
        revoked = l.version
    FROM ours WHERE l.name = ours.name
    RETURNING
        CASE
            WHEN l.owner IS NOT NULL THEN pg_notify('{channel}', concat_ws(' ', {lock}, l.version))::text
            WHEN l.wanted_until > clock_timestamp() THEN pg_notify('{channel}', {lock})::text
        END AS told,
        pg_notify('{channel}', 'revoked')::text AS hinted
)
SELECT
    $3::bigint AS echo,
    EXISTS (SELECT FROM freed) AS is_revoked,
    EXISTS (
        SELECT FROM {table} l
        WHERE l.name = $1 AND l.version = $2 AND l.owner IS NOT NULL AND l.expires_at > clock_timestamp()
    ) AS is_held
