-- Takes a lock that is free and has a row: the usual case, at the price of a bare UPDATE. Otherwise returns no row, and
-- acquire.sql finds out why. With acquire.sql alone, taking and releasing such a lock would cost the server 2.1 times
-- as many instructions: 867 instead of 412 thousand, counted by callgrind in PostgreSQL 15 for prepared statements.
-- $1 name  $2 owner  $3 ttl, us  $4 limit, us  $5 holder  $6 echo
-- See acquire.sql for the limit, for an owner that asks again or whose grant was revoked, and for the lock on the row. The next holder uses
-- acquire.sql, where it leaves its place: otherwise, its own release would grant the lock to it.
UPDATE {table} l SET
    owner = $2::uuid,
    version = CASE
        WHEN l.owner = $2::uuid AND l.expires_at > clock_timestamp() THEN l.version
        ELSE greatest(l.version + 1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint) * 2048 / 2048
    END,
    expires_at = clock_timestamp() + $3 * interval '1 microsecond',
    holder = $5
WHERE l.name = (
    SELECT f.name FROM {table} f
    WHERE f.name = $1
        AND (
            f.owner IS NULL OR f.expires_at <= clock_timestamp()
            OR f.revoked IS DISTINCT FROM f.version AND f.owner = $2::uuid
        )
        AND date_part('epoch', clock_timestamp()) * 1000000 <= $4
    FOR UPDATE SKIP LOCKED
)
RETURNING
    $6::bigint AS echo,
    (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS us,
    l.version,
    l.wanted_until > clock_timestamp() AS wanted,
    false AS is_new
