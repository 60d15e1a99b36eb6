-- Removes the rows of a page of the table whose locks were not used for long.
-- $1 the last name of the page before  $2 rows of a page  $3 retention, us  $4 echo
WITH page AS MATERIALIZED (
    SELECT name FROM {table} WHERE name > $1 ORDER BY name LIMIT $2
), old AS MATERIALIZED (
    SELECT l.name FROM page JOIN {table} l ON l.name = page.name
    WHERE l.expires_at < clock_timestamp() - $3 * interval '1 microsecond'
    FOR UPDATE OF l SKIP LOCKED
), removed AS (
    DELETE FROM {table} l USING old WHERE l.name = old.name
    RETURNING 1
)
SELECT
    $4::bigint AS echo,
    (SELECT max(name) FROM page) AS last,
    (SELECT count(*) FROM removed) AS removed
