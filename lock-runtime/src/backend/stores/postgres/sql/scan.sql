-- Looks at a page of the table, for the locks that are held. Locks no row.
-- $1 see state.sql  $2 the name at which the page begins, in hexadecimal, because the database may contain names that are
-- no text  $3 rows of the page  $4 echo
-- A row for each held lock, and one for the last name of the page.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), page AS MATERIALIZED (
    SELECT p.* FROM {table} p
    WHERE p.name >= convert_from(decode($2, 'hex'), getdatabaseencoding())
    ORDER BY p.name LIMIT $3
), extent AS MATERIALIZED (
    SELECT max(p.name) AS last, count(*) AS size FROM page p
)
SELECT
    $4::bigint AS echo,
    encode(convert_to(l.name, getdatabaseencoding()), 'hex') AS place,
    l.name = extent.last AS is_last,
    extent.size,
    l.owner IS NOT NULL AND l.expires_at > clock.now AS is_held,
    {state}
FROM page l, clock, extent
WHERE l.owner IS NOT NULL AND l.expires_at > clock.now OR l.name = extent.last
ORDER BY l.name
