CREATE TABLE IF NOT EXISTS distributed_locks (
    -- The name of the lock, compared byte by byte.
    name text COLLATE "C" PRIMARY KEY,
    -- The holder, as the hash of its secret; NULL while the lock is free.
    owner uuid,
    -- The version of the last grant: the server's time in microseconds, or one more than the version before. The
    -- fencing token is made from the version.
    version bigint NOT NULL,
    -- The end of the lease, which a release does not change; of an advisory lock, the time of its last acquisition.
    expires_at timestamptz NOT NULL,
    -- Until when a release notifies its waiters.
    wanted_until timestamptz NOT NULL DEFAULT '-infinity',
    -- The holder's host and process, for a human reader.
    holder text NOT NULL DEFAULT '',
    -- The waiter that is granted the lock by the next release: its owner, until when its place stands, the lease of its
    -- grant, and its host and process.
    next_owner uuid,
    next_until timestamptz NOT NULL DEFAULT '-infinity',
    next_lease interval NOT NULL DEFAULT '0',
    next_holder text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
