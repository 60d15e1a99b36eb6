-- Prepares a session for advisory locks.
-- $1 session timeout, us  $2 echo
-- A silent client loses its session, and the locks in it, after the session timeout and not earlier: whether its host
-- answers is left to that, too. A pooler may have lent the session to others, who have left locks in it.
-- A row has to be read as others have committed it while the statement runs. It is found by its name, because a table that
-- looks small may have many old versions of its rows; and no statement is planned again. A row that another transaction
-- is about to create is not waited for.
SELECT
    $2::bigint AS echo,
    set_config('idle_session_timeout', ($1 / 1000)::text, false),
    set_config('tcp_keepalives_idle', '0', false),
    set_config('tcp_user_timeout', '0', false),
    set_config('lock_timeout', '100ms', false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('plan_cache_mode', 'force_generic_plan', false),
    set_config('enable_seqscan', 'off', false),
    set_config('enable_hashjoin', 'off', false),
    set_config('enable_mergejoin', 'off', false),
    pg_advisory_unlock_all()::text,
    pg_backend_pid() AS pid
