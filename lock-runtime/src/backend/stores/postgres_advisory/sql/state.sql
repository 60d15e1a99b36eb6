-- A part of the statements for operators: the columns that describe a lock that the session `h` has, with its row `l`.
-- $1 the time for which each request of a waiter notes that the waiter is to be notified, us
-- The row describes the holder if the session of the holder has written it.
h.mark IS NOT NULL AS is_ours,
coalesce(h.mark = l.session, false) AS is_described,
(SELECT a.application_name FROM pg_stat_activity a WHERE a.pid = h.pid) AS application,
l.holder,
l.version,
coalesce(l.revoked = l.version, false) AS is_revoked,
-- See wanted.sql.
CASE WHEN l.wanted_until > clock.now AND date_part('epoch', l.wanted_until) * 1000000 - $1::bigint > l.version
    THEN l.next_holder
END AS waiter
