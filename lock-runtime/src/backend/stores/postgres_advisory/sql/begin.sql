-- Prepares a session for advisory locks.
-- $1 session timeout, us  $2 the kind and $3 the number of the session's mark  $4 echo
-- A silent client loses its session, and the locks in it, after the session timeout and not earlier: no TCP
-- setting ends a session because its host does not answer. A pooler may have lent the session to other clients, which
-- have left locks in it.
-- Statements must read a row as other transactions have committed it while the statement runs. Rows are found by name,
-- because a table that looks small may have many old versions of its rows. No statement is planned again. No statement
-- waits for long, as for another transaction that is about to create a row.
SELECT
    $4::bigint AS echo,
    set_config('idle_session_timeout', ($1 / 1000)::text, false),
    set_config('tcp_keepalives_idle', '0', false),
    set_config('tcp_user_timeout', '0', false),
    set_config('lock_timeout', '100ms', false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('plan_cache_mode', 'force_generic_plan', false),
    set_config('enable_seqscan', 'off', false),
    set_config('enable_hashjoin', 'off', false),
    set_config('enable_mergejoin', 'off', false),
    -- The mark is an advisory lock that shows other sessions whose session this is, and ends with the session. It is taken
    -- when the locks of an earlier client have been given back, because it is a lock, too.
    CASE WHEN pg_advisory_unlock_all()::text IS NOT NULL THEN pg_try_advisory_lock($2::int, $3::int) END AS is_marked,
    pg_backend_pid() AS pid
