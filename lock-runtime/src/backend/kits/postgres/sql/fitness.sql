-- Whether the server and the table can hold locks, and which table this is. Executed once for each server.
-- $1 echo
SELECT
    $1::bigint AS echo,
    CASE
        WHEN t.relpersistence <> 'p' THEN 'the table is not logged'
        WHEN current_setting('fsync') = 'off' THEN 'fsync is off'
        WHEN current_setting('synchronous_commit') = 'off' THEN 'synchronous_commit is off'
    END AS danger,
    has_table_privilege(t.oid, 'SELECT') AND has_table_privilege(t.oid, 'INSERT')
        AND has_table_privilege(t.oid, 'UPDATE') AND has_table_privilege(t.oid, 'DELETE') AS may_change,
    row_security_active(t.oid) AND NOT EXISTS (
        SELECT FROM pg_policy p WHERE p.polrelid = t.oid AND p.polpermissive AND p.polcmd = '*'
    ) AS hides_rows,
    (
        SELECT string_agg(needed, ', ')
        FROM unnest(string_to_array(
            'name,owner,version,expires_at,wanted_until,holder,revoked,next_owner,next_until,next_lease,next_holder,number,session',
            ','
        )) needed
        WHERE NOT EXISTS (
            SELECT FROM pg_attribute a WHERE a.attrelid = t.oid AND a.attname = needed AND NOT a.attisdropped
        )
    ) AS lacks,
    d.oid || '/' || t.oid AS identity,
    t.relnamespace::regnamespace || '.' || t.relname AS name,
    (
        SELECT string_agg(o.relnamespace::regnamespace || '.' || o.relname, ', ') FROM pg_class o
        WHERE o.relname = t.relname AND o.oid <> t.oid AND o.relkind IN ('r', 'p')
    ) AS others
FROM pg_database d LEFT JOIN pg_class t ON t.oid = to_regclass('{table}')
WHERE d.datname = current_database()
