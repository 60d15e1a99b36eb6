-- Ends a hold, and grants the lock to the next holder, or notifies those who wait. It takes the server somewhat more time than
-- release.sql, and gives the same answer.
-- $1 name  $2 owner  $3 channel  $4 payload  $5 echo
-- The notification of a grant proves that it comes from the row: only the next holder knows the secret that it is made from.
-- Whether there is one is asked of the time at which the statement arrived, which is the same for all columns. The lease is
-- dated after the row was locked: the next holder counts from before it locked the row itself.
UPDATE {table} l SET
    owner = CASE WHEN least(l.next_until, l.expires_at) > statement_timestamp() THEN l.next_owner END,
    version = CASE
        WHEN least(l.next_until, l.expires_at) > statement_timestamp()
        THEN greatest(l.version + 1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint) * 2048 / 2048
        ELSE l.version
    END,
    expires_at = CASE
        WHEN least(l.next_until, l.expires_at) > statement_timestamp() THEN clock_timestamp() + l.next_lease
        ELSE l.expires_at
    END,
    holder = CASE WHEN least(l.next_until, l.expires_at) > statement_timestamp() THEN l.next_holder ELSE '' END,
    next_until = '-infinity'
WHERE l.name = (
    SELECT o.name FROM {table} o WHERE o.name = $1 AND o.owner = $2::uuid FOR UPDATE SKIP LOCKED
)
RETURNING
    $5::bigint AS echo,
    l.owner IS NOT NULL OR l.expires_at > clock_timestamp() AS was_valid,
    CASE
        WHEN l.owner IS NOT NULL THEN pg_notify(
            $3, concat_ws(' ', $4, l.version, encode(sha256(uuid_send(l.owner) || int8send(l.version)), 'hex'))
        )::text
        WHEN l.wanted_until > clock_timestamp() THEN pg_notify($3, $4)::text
    END AS told
