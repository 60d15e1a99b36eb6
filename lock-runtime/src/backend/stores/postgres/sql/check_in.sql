-- Checks within a user's transaction that a lock is held, and keeps the lock from being released or taken until the end
-- of the transaction. A renewal is still possible, because a renewal changes no key (FOR NO KEY UPDATE).
-- The row is read in the snapshot of the statement or of the transaction, and may have been changed since. PostgreSQL
-- nevertheless locks a row whose key was not changed. An update by a transaction that has locked the row FOR UPDATE
-- counts as a change of the key (compute_new_xmax_infomask in heapam.c, since 9.3). Grants and releases lock the row
-- FOR UPDATE; after them, this statement reads the latest row, or fails if the transaction's snapshot is older.
-- A grant that an operator has revoked is still its holder's alone; the answer says whether it was. A revocation, too, is
-- an update that changes no key, so an older snapshot does not show it.
-- $1 name  $2 owner  $3 version
SELECT coalesce(l.revoked = l.version, false) AS is_revoked FROM {table} l WHERE l.name = $1 AND l.owner = $2 AND l.version = $3 FOR KEY SHARE
