-- Whether the server and the table can hold locks, and which ones they are. Executed on each new connection.
SELECT
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us,
    current_setting('transaction_read_only') = 'on' AS is_read_only,
    CASE
        WHEN t.relpersistence <> 'p' THEN 'the table is not logged'
        WHEN current_setting('fsync') = 'off' THEN 'fsync is off'
        WHEN current_setting('synchronous_commit') = 'off' THEN 'synchronous_commit is off'
    END AS danger,
    has_table_privilege(t.oid, 'SELECT') AND has_table_privilege(t.oid, 'INSERT')
        AND has_table_privilege(t.oid, 'UPDATE') AND has_table_privilege(t.oid, 'DELETE') AS may_change,
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint || '/' || d.oid || '/' || t.oid AS identity
FROM pg_database d LEFT JOIN pg_class t ON t.oid = to_regclass('{table}')
WHERE d.datname = current_database()
