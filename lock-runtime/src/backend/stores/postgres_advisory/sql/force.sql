-- Ends the session that has a lock, with all its locks, and notifies the waiters of this lock.
-- $1 key  $2 name of the row  $3 version, or NULL for sessions of other programs  $4 how long to wait for the end of a
-- session, ms  $5 echo
-- A row for each session that has the lock by this grant: whether the user may end the session, and whether it has ended.
-- Only a superuser may end the session of a superuser.
WITH {holders}, targets AS MATERIALIZED (
    SELECT h.pid, EXISTS (
        SELECT FROM pg_stat_activity a JOIN pg_roles r ON r.oid = a.usesysid
        WHERE a.pid = h.pid AND CASE
            WHEN r.rolsuper THEN EXISTS (SELECT FROM pg_roles u WHERE u.rolname = current_user AND u.rolsuper)
            ELSE pg_has_role(r.oid, 'USAGE') OR pg_has_role('pg_signal_backend', 'USAGE')
        END
    ) AS may_end
    FROM holders h
    WHERE h.number = $1 AND CASE
        WHEN $3::bigint IS NULL THEN h.mark IS NULL
        ELSE EXISTS (SELECT FROM {table} l WHERE l.name = $2 AND l.version = $3 AND l.session = h.mark)
    END
), ended AS MATERIALIZED (
    SELECT t.pid, t.may_end, CASE WHEN t.may_end THEN pg_terminate_backend(t.pid, $4) END AS has_ended FROM targets t
)
SELECT
    $5::bigint AS echo,
    e.may_end,
    e.has_ended,
    CASE WHEN e.has_ended THEN pg_notify('{channel}', {lock})::text END AS told
FROM ended e LEFT JOIN {table} l ON l.name = $2
