-- Announces a revocation to the holders, which look at the number of the last one now and then.
-- $1 echo
INSERT INTO {table} AS l (name, version, expires_at)
VALUES (E'\trevocations', (date_part('epoch', clock_timestamp()) * 1000000)::bigint, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET
    version = greatest(l.version + 1, EXCLUDED.version),
    expires_at = EXCLUDED.expires_at
RETURNING $1::bigint AS echo
