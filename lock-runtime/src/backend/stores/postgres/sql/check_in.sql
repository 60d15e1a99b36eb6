-- Checks within a user's transaction that a lock is held, and keeps it from being released or taken until the end of the
-- transaction. A renewal is still possible, because it changes no key (FOR NO KEY UPDATE).
-- The row is read in the statement's snapshot, or in the transaction's, and may have been changed since. PostgreSQL locks it
-- nevertheless if no key was changed. An update by a transaction that has locked the row FOR UPDATE counts as one of a
-- key (compute_new_xmax_infomask in heapam.c, since 9.3). Grants and releases lock it so; then this statement reads the
-- latest row, or fails if the transaction's snapshot is older.
-- $1 name  $2 owner  $3 version
SELECT 1 FROM {table} l WHERE l.name = $1 AND l.owner = $2 AND l.version = $3 FOR KEY SHARE
