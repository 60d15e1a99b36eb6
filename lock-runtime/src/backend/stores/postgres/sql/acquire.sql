-- Takes a lock that is free; creates its row, if there is none; or tells how long it is held, and asks to be notified of
-- its release. All of it in one statement, which take.sql spares most callers.
-- $1 name  $2 owner  $3 ttl, us  $4 limit, us  $5 holder  $6 how long to be notified, us; 0: not  $7 echo
-- Executed after its limit, in the server's time, it does nothing: its caller has given it up, and would hold the lock
-- without knowing it. Repeated by the same owner, it grants the same version again.
-- No row is waited for. A locked row is about to be changed, or its holder has checked in with a transaction: in both
-- cases the lock is not free. The lock on the row (FOR UPDATE) is one that conflicts with such a check-in.
WITH moment AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), clock AS MATERIALIZED (
    SELECT now, (extract(epoch FROM now) * 1000000)::bigint AS us FROM moment
), free AS MATERIALIZED (
    SELECT l.name FROM {table} l, clock
    WHERE l.name = $1 AND clock.us <= $4 AND (l.owner IS NULL OR l.expires_at <= clock.now OR l.owner = $2::uuid)
    FOR UPDATE OF l SKIP LOCKED
), taken AS (
    UPDATE {table} l SET
        owner = $2::uuid,
        version = CASE
            WHEN l.owner = $2::uuid AND l.expires_at > clock.now THEN l.version
            ELSE greatest(l.version + 1, clock.us)
        END,
        expires_at = clock.now + $3 * interval '1 microsecond',
        holder = $5
    FROM free, clock WHERE l.name = free.name
    RETURNING l.version, l.wanted_until > clock.now AS wanted
), created AS (
    INSERT INTO {table} (name, owner, version, expires_at, holder)
    SELECT $1, $2::uuid, clock.us, clock.now + $3 * interval '1 microsecond', $5
    FROM clock
    WHERE clock.us <= $4 AND NOT EXISTS (SELECT FROM {table} WHERE name = $1)
    ON CONFLICT (name) DO NOTHING
    RETURNING version, false AS wanted
), held AS MATERIALIZED (
    SELECT l.name FROM {table} l, clock
    WHERE l.name = $1 AND $6 > 0 AND l.owner <> $2::uuid AND l.expires_at > clock.now
        AND l.wanted_until < clock.now + $6 * interval '0.5 microsecond'
    FOR NO KEY UPDATE OF l SKIP LOCKED
), marked AS (
    UPDATE {table} l SET wanted_until = clock.now + $6 * interval '1 microsecond'
    FROM held, clock WHERE l.name = held.name
)
SELECT
    $7::bigint AS echo,
    clock.us,
    granted.version,
    coalesce(granted.wanted, false) AS wanted,
    -- How long the holder's lease lasts; NULL if that is not known, or for ever.
    (extract(epoch FROM (
        SELECT l.expires_at FROM {table} l WHERE l.name = $1 AND l.owner IS NOT NULL AND isfinite(l.expires_at)
    ) - clock.now) * 1000000)::bigint AS remaining
FROM clock LEFT JOIN (SELECT * FROM taken UNION ALL SELECT * FROM created) granted ON true
