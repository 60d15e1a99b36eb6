-- Whether other sessions wait for locks that the session has. Locks no row.
-- $1 names of the rows  $2 the time for which each request of a waiter notes that the waiter is to be notified, us
-- $3 echo
-- One row for each name, in order. What the session itself has noted before it got the lock does not count: a time that
-- was noted after the grant, whose time is the version, is later by that much.
SELECT
    $3::bigint AS echo,
    pg_backend_pid() AS pid,
    EXISTS (
        SELECT FROM {table} l
        WHERE l.name = due.name AND l.wanted_until > clock_timestamp()
            AND date_part('epoch', l.wanted_until) * 1000000 > l.version + $2::bigint
    ) AS wanted
FROM unnest($1::text[]) WITH ORDINALITY AS due (name, number)
ORDER BY due.number
