-- Ends holds, each at its own row, in one statement, and notifies those who wait.
-- $1 names  $2 owners  $3 payloads  $4 channel  $5 echo
-- One row for each hold, in order: whether its lease had not ended, if it was released; otherwise whether it is held by its
-- owner, with a row that is locked. See release.sql.
WITH due AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::text[]::uuid[], $3::text[]) WITH ORDINALITY AS due (name, owner, payload, number)
), ours AS MATERIALIZED (
    SELECT l.name, due.payload, due.number FROM due JOIN {table} l ON l.name = due.name AND l.owner = due.owner
    FOR UPDATE OF l SKIP LOCKED
), freed AS (
    UPDATE {table} l SET owner = NULL, holder = '' FROM ours WHERE l.name = ours.name
    RETURNING
        ours.number,
        l.expires_at > clock_timestamp() AS was_valid,
        CASE WHEN l.wanted_until > clock_timestamp() THEN pg_notify($4, ours.payload)::text END AS told
)
SELECT
    $5::bigint AS echo,
    freed.was_valid,
    EXISTS (SELECT FROM {table} l WHERE l.name = due.name AND l.owner = due.owner) AS was_ours
FROM due LEFT JOIN freed ON freed.number = due.number
ORDER BY due.number
