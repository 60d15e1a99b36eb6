-- Ends a hold, and grants the lock to the next holder, or notifies the waiters. The answer has the columns of
-- release.sql. Without waiters, release.sql is cheaper; its header has the figures. release_many.sql with a list of one
-- is dearer, by 435 thousand instructions of the server, for which the next holder would wait.
-- $1 name  $2 owner  $3 the secret whose hash is this owner; NULL: the next holder has to ask  $4 echo
-- The secret proves to the next holder that the notification comes from the holder; see next_holder.rs for the limits
-- of the proof.
UPDATE {table} l SET
    {grant}
WHERE l.name = (
    SELECT o.name FROM {table} o WHERE o.name = $1 AND o.owner = $2::uuid FOR UPDATE SKIP LOCKED
)
RETURNING
    $4::bigint AS echo,
    l.owner IS NOT NULL OR l.expires_at > clock_timestamp() AS was_valid,
    CASE
        WHEN l.owner IS NOT NULL THEN pg_notify('{channel}', concat_ws(' ', {lock}, l.version, $3::uuid))::text
        WHEN l.wanted_until > clock_timestamp() THEN pg_notify('{channel}', {lock})::text
    END AS told
