-- Removes rows, except those whose locks were used meanwhile.
-- $1 names  $2 retention, us  $3 echo
WITH old AS MATERIALIZED (
    SELECT l.name FROM {table} l
    WHERE l.name = ANY ($1::text[]) AND l.expires_at < clock_timestamp() - $2 * interval '1 microsecond'
    FOR UPDATE SKIP LOCKED
), removed AS (
    DELETE FROM {table} l USING old WHERE l.name = old.name
    RETURNING 1
)
SELECT $3::bigint AS echo, count(*) AS removed FROM removed
