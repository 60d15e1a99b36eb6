-- Marks the grant of a lock as revoked: from then on, it is not renewed. The lease ends when it would have ended.
-- $1 name  $2 version  $3 echo
-- Whether the grant is revoked; if not, whether it lasts, in a row that is locked. The version is compared in the row as it
-- is when it is locked, so a late statement does not revoke a later grant. A transaction with which the holder has checked
-- in does not lock the row against a revocation.
WITH ours AS MATERIALIZED (
    SELECT l.name FROM {table} l
    WHERE l.name = $1 AND l.version = $2 AND l.owner IS NOT NULL AND l.expires_at > clock_timestamp()
    FOR NO KEY UPDATE OF l SKIP LOCKED
), revoked AS (
    UPDATE {table} l SET revoked = l.version FROM ours WHERE l.name = ours.name
    RETURNING pg_notify('{channel}', 'revoked')::text AS told
)
SELECT
    $3::bigint AS echo,
    EXISTS (SELECT FROM revoked) AS is_revoked,
    EXISTS (
        SELECT FROM {table} l
        WHERE l.name = $1 AND l.version = $2 AND l.owner IS NOT NULL AND l.expires_at > clock_timestamp()
    ) AS is_held
