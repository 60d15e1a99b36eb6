-- Looks at a page of the table.
-- $1 the last name of the page before  $2 rows of a page  $3 retention, us  $4 echo
-- A row for each lock that has long been unused, and one for the last name of the page.
WITH page AS MATERIALIZED (
    SELECT name, expires_at < clock_timestamp() - $3 * interval '1 microsecond' AS is_old
    FROM {table} WHERE name > $1 ORDER BY name LIMIT $2
)
SELECT $4::bigint AS echo, name, is_old FROM page
WHERE is_old OR name = (SELECT max(name) FROM page)
ORDER BY name
