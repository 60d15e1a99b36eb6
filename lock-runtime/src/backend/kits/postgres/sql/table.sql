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
    -- The holder's program, process, host and label.
    holder text NOT NULL DEFAULT '',
    -- The version of the last grant that an operator has revoked.
    revoked bigint,
    -- The waiter that is granted the lock by the next release: its owner, until when its place stands, the lease of its
    -- grant, and its program, process, host and label. While no place stands: what the last waiter says of itself.
    next_owner uuid,
    next_until timestamptz NOT NULL DEFAULT '-infinity',
    next_lease interval NOT NULL DEFAULT '0',
    next_holder text NOT NULL DEFAULT '',
    -- Of an advisory lock: its number, and the mark of the session that has taken it last.
    number bigint,
    session bigint
) WITH (fillfactor = 50);
