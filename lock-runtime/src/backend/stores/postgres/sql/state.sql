-- A part of the statements for operators: the columns that describe a held lock `l`, at the time `clock.now`.
-- $1 the time for which each request of a waiter notes that the waiter is to be notified, us
-- A row that was changed by hand must not make the statement fail, so no number may overflow.
l.name,
l.holder,
l.version,
coalesce(l.revoked = l.version, false) AS is_revoked,
(extract(epoch FROM greatest(least(l.expires_at, clock.now + interval '1000 years'), clock.now) - clock.now) * 1000000)::bigint AS remaining,
-- See wanted.sql.
CASE WHEN l.next_until > clock.now AND l.next_owner IS DISTINCT FROM l.owner
    OR l.wanted_until > clock.now AND date_part('epoch', l.wanted_until) * 1000000 - $1::bigint > l.version
    THEN l.next_holder
END AS waiter
