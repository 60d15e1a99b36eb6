-- Removes rows, except those whose locks were used meanwhile, and those of advisory locks that a session has: their rows
-- state when they were acquired.
-- $1 names  $2 retention, us  $3 echo
WITH taken AS MATERIALIZED (
    SELECT (k.classid::bigint << 32) + k.objid::bigint AS number FROM pg_locks k
    WHERE k.locktype = 'advisory' AND k.objsubid = 1 AND k.granted
        AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
), old AS MATERIALIZED (
    SELECT l.name FROM {table} l
    WHERE l.name = ANY ($1::text[]) AND l.expires_at < clock_timestamp() - $2 * interval '1 microsecond'
        AND (l.number IS NULL OR NOT EXISTS (SELECT FROM taken t WHERE t.number = l.number))
    FOR UPDATE SKIP LOCKED
), removed AS (
    DELETE FROM {table} l USING old WHERE l.name = old.name
    RETURNING 1
)
SELECT $3::bigint AS echo, count(*) AS removed FROM removed
