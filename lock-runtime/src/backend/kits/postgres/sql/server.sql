-- Which server this is, and whether it takes changes. Executed on each new connection; cheap, because a new session has to
-- read the catalog for anything else.
-- $1 echo
SELECT
    $1::bigint AS echo,
    (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS us,
    current_setting('transaction_read_only') = 'on' AS is_read_only,
    (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint AS started
