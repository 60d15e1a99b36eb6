-- What the server says of itself to operators.
-- $1 echo
-- In a session for advisory locks, `tcp_keepalives_idle` is the setting of the operating system, and 0 over a socket.
SELECT
    $1::bigint AS echo,
    (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS us,
    current_setting('server_version') AS version,
    current_setting('server_version_num')::bigint AS number,
    current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS synchronous_standby_names,
    -- Without subscribers of changes, which are no replicas, and without backups.
    (
        SELECT count(*) FROM pg_stat_replication r
        -- Most users may read the process alone.
        WHERE r.state IS DISTINCT FROM 'backup' AND NOT EXISTS (
            SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical'
        )
    ) AS replicas,
    (date_part('epoch', current_setting('idle_session_timeout', true)::interval) * 1000)::bigint AS idle_ms,
    CASE
        WHEN set_config('tcp_keepalives_idle', '0', true) IS NOT NULL
        THEN current_setting('tcp_keepalives_idle')::bigint
    END AS keepalives_idle,
    current_setting('tcp_keepalives_interval')::bigint * current_setting('tcp_keepalives_count')::bigint
        AS keepalives_unanswered,
    current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
        - coalesce(current_setting('reserved_connections', true)::bigint, 0) AS most_of_server,
    used.of_server,
    (SELECT r.rolconnlimit::bigint FROM pg_roles r WHERE r.rolname = session_user) AS most_of_user,
    used.of_user,
    (SELECT d.datconnlimit::bigint FROM pg_database d WHERE d.datname = current_database()) AS most_of_database,
    used.of_database
FROM (
    SELECT
        count(*) AS of_server,
        count(*) FILTER (WHERE a.usename = session_user) AS of_user,
        count(*) FILTER (WHERE a.datname = current_database()) AS of_database
    FROM pg_stat_activity a
    -- The kind is shown only to some users; of the server's own processes, few have both a user and a database.
    WHERE a.usesysid IS NOT NULL AND a.datid IS NOT NULL
        AND coalesce(a.backend_type, 'client backend') = 'client backend'
) used
