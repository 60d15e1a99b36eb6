-- Whether other clients wait for a held lock. Locks no row.
-- $1 name  $2 owner  $3 the time for which each request of a waiter notes that the waiter is to be notified, us  $4 echo
-- The row may still contain what the holder noted while it waited itself. Therefore, a time up to which a waiter is to
-- be notified counts only if it was noted after the grant, whose time is the version, and a next holder counts only if
-- it is not the holder.
SELECT
    $4::bigint AS echo,
    l.next_until > clock_timestamp() AND l.next_owner IS DISTINCT FROM $2::uuid
        OR l.wanted_until > clock_timestamp()
        AND date_part('epoch', l.wanted_until) * 1000000 > l.version + $3 AS wanted
FROM {table} l WHERE l.name = $1 AND l.owner = $2::uuid
