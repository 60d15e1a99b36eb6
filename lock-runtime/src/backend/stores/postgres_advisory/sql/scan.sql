-- Looks at a page of the table, for the locks that sessions have.
-- $1 see state.sql  $2 the name at which the page begins, in hexadecimal, because the database may contain names that are
-- no text  $3 rows of the page  $4 echo
-- A row for each session that has one of the locks, and at least one for the last name of the page.
WITH {holders}, page AS MATERIALIZED (
    SELECT p.* FROM {table} p
    WHERE p.name >= convert_from(decode($2, 'hex'), getdatabaseencoding())
    ORDER BY p.name LIMIT $3
), extent AS MATERIALIZED (
    SELECT max(p.name) AS last, count(*) AS size FROM page p
)
SELECT
    $4::bigint AS echo,
    encode(convert_to(l.name, getdatabaseencoding()), 'hex') AS place,
    l.name,
    l.name = extent.last AS is_last,
    extent.size,
    (SELECT count(*) FROM locks) AS copied,
    h.pid IS NOT NULL AS is_held,
    {state}
FROM page l CROSS JOIN extent CROSS JOIN clock LEFT JOIN holders h ON h.number = l.number
WHERE h.pid IS NOT NULL OR l.name = extent.last
ORDER BY l.name
