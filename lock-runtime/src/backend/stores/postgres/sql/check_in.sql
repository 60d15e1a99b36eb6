-- Checks within a user's transaction that a lock is held, and keeps it from being released or taken until the end of the
-- transaction. A renewal is still possible, because it changes no key (FOR NO KEY UPDATE).
-- $1 name  $2 owner  $3 version
SELECT 1 FROM {table} l WHERE l.name = $1 AND l.owner = $2::uuid AND l.version = $3 FOR KEY SHARE
