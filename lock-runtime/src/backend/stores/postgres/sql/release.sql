-- Ends a hold, and notifies the waiters: the cheapest way, for a lock that probably has no waiters. Returns no row if
-- the lock is not held, or if its row is locked; release_many.sql finds out which. A next holder keeps its place, and
-- asks when it is notified: any client may take the lock before the next holder asks, so this statement shows no
-- secret.
-- Taking and releasing a lock would cost the server 2.2 times as many instructions with release_many.sql and a list of
-- one (895 instead of 412 thousand, counted as for take.sql), and 12 % more with hand_over.sql (460 thousand).
-- $1 name  $2 owner  $3 echo
-- While a transaction with which the holder has checked in is open, the row stays as it is (FOR UPDATE conflicts with
-- the check-in).
UPDATE {table} l SET owner = NULL, holder = ''
WHERE l.name = (
    SELECT o.name FROM {table} o WHERE o.name = $1 AND o.owner = $2::uuid FOR UPDATE SKIP LOCKED
)
RETURNING
    $3::bigint AS echo,
    l.expires_at > clock_timestamp() AS was_valid,
    CASE WHEN l.wanted_until > clock_timestamp() THEN pg_notify('{channel}', {lock})::text END AS told
