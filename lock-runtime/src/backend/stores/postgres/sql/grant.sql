-- A part of the statements that end a hold: the columns that grant the lock to the next holder, if there is one.
-- Whether there is a next holder is decided for the time at which the statement arrived, which is the same for all
-- columns. The lease begins after this statement has locked the row. The next holder counts from the time at which it
-- sent its own earlier request, so it never overestimates the lease.
owner = CASE WHEN least(l.next_until, l.expires_at) > statement_timestamp() THEN l.next_owner END,
version = CASE
    WHEN least(l.next_until, l.expires_at) > statement_timestamp()
    THEN greatest(l.version + 1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint) * 2048 / 2048
    ELSE l.version
END,
expires_at = CASE
    WHEN least(l.next_until, l.expires_at) > statement_timestamp() THEN clock_timestamp() + l.next_lease
    ELSE l.expires_at
END,
holder = CASE WHEN least(l.next_until, l.expires_at) > statement_timestamp() THEN l.next_holder ELSE '' END,
next_until = '-infinity'
