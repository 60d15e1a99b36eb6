-- The number of the last revocation of a lock in this table; NULL if there was none for long. The row is named like no
-- lock, because a name has no control character.
-- $1 echo
SELECT
    $1::bigint AS echo,
    pg_backend_pid() AS pid,
    (SELECT l.version FROM {table} l WHERE l.name = E'\trevocations') AS last
