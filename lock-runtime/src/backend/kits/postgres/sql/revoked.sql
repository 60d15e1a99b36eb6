-- The rows among these whose last grant is revoked, or one of the given grants. Locks no row.
-- $1 names  $2 versions of grants  $3 echo
SELECT
    $3::bigint AS echo,
    pg_backend_pid() AS pid,
    ARRAY(
        SELECT l.name FROM {table} l
        WHERE l.name = ANY($1::text[]) AND (l.revoked = l.version OR l.revoked = ANY($2::bigint[]))
    ) AS names
