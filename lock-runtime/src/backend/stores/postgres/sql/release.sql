-- Ends a hold, in one statement, and notifies those who wait.
-- $1 name  $2 owner  $3 channel  $4 payload  $5 echo
-- While a transaction that the holder has checked in with is open, the row stays as it is (FOR UPDATE conflicts with it).
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), ours AS MATERIALIZED (
    SELECT l.name, l.expires_at > clock.now AS valid, l.wanted_until > clock.now AS wanted
    FROM {table} l, clock
    WHERE l.name = $1 AND l.owner = $2::uuid
    FOR UPDATE OF l SKIP LOCKED
), freed AS (
    UPDATE {table} l SET owner = NULL, expires_at = least(l.expires_at, clock.now), holder = ''
    FROM ours, clock WHERE l.name = ours.name
    RETURNING ours.valid, ours.wanted
), told AS (
    SELECT pg_notify($3, $4) FROM freed WHERE wanted
)
SELECT
    $5::bigint AS echo,
    (SELECT valid FROM freed) AS was_valid,
    EXISTS (SELECT FROM {table} l WHERE l.name = $1 AND l.owner = $2::uuid) AS was_ours,
    (SELECT count(*) FROM told) AS told
