-- Removes the mark of a period, if it has this owner, or if the row names an earlier period.
-- $1 name of the row  $2 owner  $3 number of the period  $4 echo
-- The row stays, and states that the mark is removed, so that a statement of the same owner that is executed late does not
-- set the mark again.
WITH removed AS (
    INSERT INTO {table} AS l (name, owner, version, expires_at, revoked)
    VALUES ($1, $2::uuid, $3, clock_timestamp(), $3)
    ON CONFLICT (name) DO UPDATE SET
        owner = excluded.owner,
        version = excluded.version,
        expires_at = excluded.expires_at,
        revoked = excluded.revoked
    WHERE l.version < excluded.version OR l.version = excluded.version AND l.owner = excluded.owner
    RETURNING 1
)
SELECT $4::bigint AS echo, count(*) AS removed FROM removed
