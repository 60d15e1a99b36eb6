-- Marks the grant of a lock as revoked, so that its holder, which looks for such marks, gives the lock back.
-- $1 key  $2 name of the row  $3 version  $4 echo
-- Whether the grant is revoked; if not, whether it lasts, with a row that is locked. The version is compared in the row as it
-- is when it is locked, so a late statement does not revoke a later grant.
WITH {holders}, ours AS MATERIALIZED (
    SELECT l.name FROM {table} l
    WHERE l.name = $2 AND l.version = $3 AND l.session IN (SELECT h.mark FROM holders h WHERE h.number = $1)
    FOR NO KEY UPDATE OF l SKIP LOCKED
), revoked AS (
    UPDATE {table} l SET revoked = l.version FROM ours WHERE l.name = ours.name
    RETURNING pg_notify('{channel}', 'revoked')::text AS told
)
SELECT
    $4::bigint AS echo,
    EXISTS (SELECT FROM revoked) AS is_revoked,
    EXISTS (
        SELECT FROM {table} l
        WHERE l.name = $2 AND l.version = $3 AND l.session IN (SELECT h.mark FROM holders h WHERE h.number = $1)
    ) AS is_held
