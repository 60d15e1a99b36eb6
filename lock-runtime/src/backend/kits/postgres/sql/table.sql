CREATE TABLE IF NOT EXISTS distributed_locks (
    -- The name of the lock, compared byte by byte.
    name text COLLATE "C" PRIMARY KEY,
    -- The holder, as the hash of its secret; NULL while the lock is free.
    owner uuid,
    -- Of the last grant: the server's time in microseconds, or one more than before. The fencing token is made from it.
    version bigint NOT NULL,
    -- The end of the lease, or when the lock was released.
    expires_at timestamptz NOT NULL,
    -- Until when a release notifies its waiters.
    wanted_until timestamptz NOT NULL DEFAULT '-infinity',
    -- Who holds it, for a human reader.
    holder text NOT NULL DEFAULT '',
    -- The waiter that is granted the lock by the next release, if that happens in time: until when, for how
    -- long, and who it is.
    next_owner uuid,
    next_until timestamptz NOT NULL DEFAULT '-infinity',
    next_lease interval NOT NULL DEFAULT '0',
    next_holder text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
