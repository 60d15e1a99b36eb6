-- Sets the mark of a period, unless its row names this period with another owner, or a later period.
-- $1 name of the row  $2 owner  $3 number of the period  $4 how long the mark is of use, us  $5 echo
-- A row if the mark is set: repeated by the same owner, the statement finds its own mark. A mark that was removed has its
-- own number in the column `revoked`. Its owner does not set it again: that would be an earlier statement that is executed
-- late. The row is of no use after `expires_at`: then the removal of old rows may delete it, and if it names a later period,
-- its client had a wrong clock.
INSERT INTO {table} AS l (name, owner, version, expires_at)
VALUES ($1, $2::uuid, $3, clock_timestamp() + $4 * interval '1 microsecond')
ON CONFLICT (name) DO UPDATE SET
    owner = excluded.owner,
    version = excluded.version,
    expires_at = excluded.expires_at,
    revoked = NULL
WHERE l.version < excluded.version
    OR l.version > excluded.version AND l.expires_at <= clock_timestamp()
    OR l.version = excluded.version AND (l.revoked IS NOT DISTINCT FROM l.version) <> (l.owner = excluded.owner)
RETURNING $5::bigint AS echo
