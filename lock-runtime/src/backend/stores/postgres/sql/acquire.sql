-- Takes a free lock, and creates its row if there is none. If the lock is held, returns the rest of the lease, asks for
-- notifications of the release, and asks the release for a grant of the lock. Most callers need only take.sql.
-- $1 name  $2 owner  $3 ttl, us  $4 limit, us  $5 holder  $6 time for which to notify the caller, us, or 0
-- $7 lease that the release is to grant to the caller, us, or 0  $8 the holder that the row named when the caller's
-- place was last proved, or NULL  $9 echo
-- After its limit, in the server's time, the statement does nothing: its caller has given up, and would hold the lock
-- without knowing. Repeated by the same owner, the statement grants the same version again,
-- unless an operator has revoked this grant.
-- A version has 52 bits. A larger version is an error, because 2048 times that version is no bigint. (With a CHECK on
-- the table, the server would take a sixth more time for an update.)
-- The statement waits for no row that it can see. A locked row is about to be changed, or its holder has checked in
-- with a transaction: in both cases the lock is not free. The lock on the row (FOR UPDATE) conflicts with such a
-- check-in. For a row of the same name that another transaction has inserted and not yet committed, the statement waits
-- for up to 20 ms.
WITH moment AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), clock AS MATERIALIZED (
    SELECT now, (extract(epoch FROM now) * 1000000)::bigint AS us FROM moment
), free AS MATERIALIZED (
    SELECT l.name FROM {table} l, clock
    WHERE l.name = $1 AND clock.us <= $4 AND (
        l.owner IS NULL OR l.expires_at <= clock.now
        OR l.revoked IS DISTINCT FROM l.version AND l.owner = $2::uuid)
    FOR UPDATE OF l SKIP LOCKED
), taken AS (
    UPDATE {table} l SET
        owner = $2::uuid,
        version = CASE
            WHEN l.owner = $2::uuid AND l.expires_at > clock.now THEN l.version
            ELSE greatest(l.version + 1, clock.us) * 2048 / 2048
        END,
        expires_at = clock.now + $3 * interval '1 microsecond',
        holder = $5,
        next_until = CASE WHEN l.next_owner = $2::uuid THEN '-infinity' ELSE l.next_until END
    FROM free, clock WHERE l.name = free.name
    RETURNING l.version, l.wanted_until > clock.now AS wanted, false AS is_new
), created AS (
    INSERT INTO {table} (name, owner, version, expires_at, holder)
    SELECT
        $1, $2::uuid, clock.us, clock.now + $3 * interval '1 microsecond',
        $5 || left(set_config('lock_timeout', '20ms', true), 0)
    FROM clock
    WHERE clock.us <= $4 AND NOT EXISTS (SELECT FROM {table} WHERE name = $1)
    ON CONFLICT (name) DO NOTHING
    RETURNING version, false AS wanted, true AS is_new
), held AS MATERIALIZED (
    SELECT
        l.name,
        $7 > 0 AND (l.next_until <= clock.now OR l.next_owner = $2::uuid) AS may_be_next
    FROM {table} l, clock
    WHERE l.name = $1 AND $6 > 0 AND clock.us <= $4 AND l.owner <> $2::uuid AND l.expires_at > clock.now
        AND (
            l.wanted_until < clock.now + $6 * interval '1 microsecond' / 2
            OR $7 > 0 AND l.next_until <= clock.now
            OR $7 > 0 AND l.next_owner = $2::uuid AND (
                l.next_until < clock.now + greatest($6, $7) * interval '1 microsecond' - $6 * interval '0.5 microsecond'
                OR l.owner IS DISTINCT FROM $8::uuid
            )
        )
    FOR NO KEY UPDATE OF l SKIP LOCKED
), marked AS (
    UPDATE {table} l SET
        wanted_until = clock.now + $6 * interval '1 microsecond',
        next_owner = CASE WHEN held.may_be_next THEN $2::uuid ELSE l.next_owner END,
        next_until = CASE WHEN held.may_be_next THEN clock.now + greatest($6, $7) * interval '1 microsecond' ELSE l.next_until END,
        next_lease = CASE WHEN held.may_be_next THEN $7 * interval '1 microsecond' ELSE l.next_lease END,
        next_holder = CASE WHEN held.may_be_next OR l.next_until <= clock.now THEN $5 ELSE l.next_holder END
    FROM held, clock WHERE l.name = held.name
    RETURNING
        CASE WHEN l.next_owner = $2::uuid
            THEN greatest(l.version, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
        END AS seen,
        l.owner::text AS holder,
        -- Without a place, `next_until` may be infinite; infinite times cannot be subtracted before PostgreSQL 17.
        CASE WHEN held.may_be_next
            THEN (extract(epoch FROM least(l.next_until, l.expires_at) - clock.now) * 1000000)::bigint
        END AS sure
)
SELECT
    $9::bigint AS echo,
    clock.us,
    granted.version,
    coalesce(granted.wanted, false) AS wanted,
    coalesce(granted.is_new, false) AS is_new,
    -- If the caller is the next holder: a number below the version of the grant by a release, and not below any version
    -- on which an earlier waiter has relied; the holder; and the time in which no
    -- other client can be granted the lock once a release has shown the secret (see next_holder.rs). The row was locked
    -- when the place was noted, so a release that has begun before has not granted the lock to the caller.
    marked.seen,
    marked.holder,
    marked.sure,
    -- The rest of the holder's lease, NULL if it is unknown or endless; and the holder, for an operator.
    CASE WHEN isfinite(state.expires_at)
        THEN (extract(epoch FROM state.expires_at - clock.now) * 1000000)::bigint
    END AS remaining,
    state.holder AS signature,
    state.version AS held_version,
    coalesce(state.revoked = state.version, false) AS is_revoked
FROM clock
LEFT JOIN {table} state ON state.name = $1 AND state.owner IS NOT NULL
LEFT JOIN (SELECT * FROM taken UNION ALL SELECT * FROM created) granted ON true
LEFT JOIN marked ON true
