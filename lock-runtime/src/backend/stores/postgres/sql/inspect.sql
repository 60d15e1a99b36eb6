-- Describes a lock, if it is held. Locks no row.
-- $1 see state.sql  $2 name  $3 echo
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT
    $3::bigint AS echo,
    {state}
FROM {table} l, clock
WHERE l.name = $2 AND l.owner IS NOT NULL AND l.expires_at > clock.now
