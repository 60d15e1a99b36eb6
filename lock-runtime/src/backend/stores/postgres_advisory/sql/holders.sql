-- A part of the statements for operators: the advisory locks of the database that sessions have (`holders`), each with the
-- mark of its session, which is NULL in the session of another program. The server keeps all locks from changing while it
-- copies them for pg_locks, once for the statement.
clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), locks AS MATERIALIZED (
    SELECT
        k.objsubid, k.classid::bigint AS kind, k.objid::bigint AS mark, (k.classid::bigint << 32) + k.objid::bigint AS number,
        k.pid
    FROM pg_locks k
    WHERE k.locktype = 'advisory' AND k.granted AND k.pid IS NOT NULL
        AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
), marks AS MATERIALIZED (
    SELECT m.pid, m.mark FROM locks m WHERE m.objsubid = 2 AND m.kind = {kind}
), holders AS MATERIALIZED (
    SELECT k.number, k.pid, m.mark FROM locks k LEFT JOIN marks m ON m.pid = k.pid WHERE k.objsubid = 1
)
