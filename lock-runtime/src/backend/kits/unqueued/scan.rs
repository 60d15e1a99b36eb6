//! The search for held locks, in pages of bounded cost for each node.
//!
//! A lock that is held is on a majority of the nodes, so the names on any majority of the nodes include the lock. The names
//! are read from one node after the other. The holder of each name is then asked for on all nodes, as for a single lock.

use std::{collections::HashSet, fmt, sync::Arc};

use redis::Value;

use super::{
    error::out_of_reach,
    look::Look,
    node::{Line, Node},
    operate::{look, unexpected},
    shared::Shared,
};
use crate::{
    LockError, LockErrorKind, LockKey,
    backend::{Page, Scan, kits::redis::error::Failure},
};

/// Number of keys that a server looks at for one page (`SCAN … COUNT`); this takes a server less than a millisecond.
const KEYS_PER_PAGE: usize = 500;
/// Upper bound on the locks about which a server is asked in one call; this takes a server less than a millisecond.
const LOCKS_PER_CALL: usize = 128;

/// Returns the next page of the held locks.
pub(crate) async fn scan(shared: &Shared, scan: &Scan) -> Result<Page, LockError> {
    let nodes = &shared.nodes;
    let mut cursor = match &scan.from {
        None => Cursor::default(),
        Some(text) => Cursor::read(text).ok_or_else(no_page)?,
    };
    let mut failures = Vec::new();
    let found = loop {
        // At least one node is left: fewer than a majority are done, and fewer than a majority have failed.
        let node = nodes.of.get(cursor.node).ok_or_else(no_page)?;
        match names(node, nodes.protocol.for_operators().key_type, scan, &mut cursor).await {
            Ok(found) => break found,
            Err(failure) => {
                failures.push((cursor.node, failure));
                cursor.failed.push(cursor.node);
                if cursor.failed.len() > nodes.of.len() - nodes.majority() {
                    return Err(out_of_reach(&nodes.of, failures));
                }
                cursor.begin_next();
            }
        }
    };
    let mut locks = Vec::new();
    for keys in found.chunks(LOCKS_PER_CALL) {
        for ((look, _), key) in look(nodes, &Arc::from(keys)).await?.iter().zip(keys) {
            if !is_left_out(&cursor, look) {
                locks.push(look.state(key, &*nodes.protocol));
            }
        }
    }
    if cursor.at == 0 {
        cursor.done.push((cursor.node, cursor.began));
        if cursor.done.len() >= nodes.majority() {
            return Ok(Page::new(locks, None));
        }
        cursor.begin_next();
    }
    Ok(Page::new(locks, Some(cursor.to_string())))
}

fn no_page() -> LockError {
    LockError::new(LockErrorKind::InvalidOptions, "not a page of a scan of this store")
}

/// Returns whether this page leaves a lock out: nothing that is certainly a lock is held, or the lock is on the pages of an
/// earlier node, because that node has had the lock since before its names were read.
fn is_left_out(cursor: &Cursor, look: &Look) -> bool {
    let candidates = look.candidates();
    let Some(holder) = candidates.first() else { return true };
    let was_on_page = |(node, began): &(usize, u64)| {
        let on_node = holder.seen_on.iter().find(|(seen_on, _)| seen_on == node);
        // Clients of other libraries take a lock on all nodes at once.
        on_node.is_some_and(|(_, seen)| seen.grant.as_ref().is_none_or(|grant| grant.recorded < *began))
    };
    holder.first().is_doubtful || cursor.done.iter().any(was_on_page)
}

/// Reads the next names from the node of the cursor, and moves the cursor behind them.
async fn names(
    node: &Arc<Node>,
    key_type: &str,
    scan: &Scan,
    cursor: &mut Cursor,
) -> Result<Vec<LockKey>, Failure> {
    let line = node.here().await?;
    if cursor.began == 0 {
        cursor.began = time(&line).await?;
    }
    let mut call = redis::cmd("SCAN");
    call.arg(cursor.at).arg("MATCH").arg(pattern(&scan.stored())).arg("COUNT").arg(KEYS_PER_PAGE);
    call.arg("TYPE").arg(key_type);
    let (next, names) = line.connection.call::<(String, Vec<Value>)>(&call).await?;
    cursor.at = next.parse().map_err(|_| unexpected())?;
    let mut keys = HashSet::new();
    for name in &names {
        if let Value::BulkString(name) = name
            && let Ok(name) = str::from_utf8(name)
        {
            keys.extend(scan.key(name));
        }
    }
    Ok(keys.into_iter().collect())
}

/// Returns the time of a node in µs.
async fn time(line: &Line) -> Result<u64, Failure> {
    let (seconds, micros) = line.connection.call::<(u64, u64)>(&redis::cmd("TIME")).await?;
    Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

/// Returns the pattern of all names with this beginning.
fn pattern(beginning: &str) -> String {
    let mut pattern = String::with_capacity(beginning.len() + 1);
    for character in beginning.chars() {
        if r"*?[]\^-".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern + "*"
}

/// The place of a page: `<done>;<failed>;<node>;<began>;<at>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cursor {
    /// The nodes whose names were all read, with the time of each node, in µs, when this began.
    done: Vec<(usize, u64)>,
    /// The nodes that could not be read.
    failed: Vec<usize>,
    /// The node that is being read.
    node: usize,
    /// The time of this node, in µs, when the first name was read; 0 before that.
    began: u64,
    /// The node's own cursor; 0 at the beginning, and after the last name.
    at: u64,
}

impl Cursor {
    /// Moves to the next node.
    fn begin_next(&mut self) {
        (self.node, self.began, self.at) = (self.node + 1, 0, 0);
    }

    fn read(text: &str) -> Option<Self> {
        let parts: Vec<_> = text.split(';').collect();
        let [done, failed, node, began, at] = parts[..] else { return None };
        let done = list(done).map(|part| {
            let (node, began) = part.split_once('@')?;
            Some((node.parse().ok()?, began.parse().ok()?))
        });
        Some(Self {
            done: done.collect::<Option<_>>()?,
            failed: list(failed).map(|part| part.parse().ok()).collect::<Option<_>>()?,
            node: node.parse().ok()?,
            began: began.parse().ok()?,
            at: at.parse().ok()?,
        })
    }
}

/// Returns the parts of a list, each of which ends with a comma.
fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split_terminator(',')
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (node, began) in &self.done {
            write!(f, "{node}@{began},")?;
        }
        f.write_str(";")?;
        for node in &self.failed {
            write!(f, "{node},")?;
        }
        write!(f, ";{};{};{}", self.node, self.began, self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::sighting::{SeenGrant, Sighting},
        *,
    };

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        for cursor in [
            Cursor::default(),
            Cursor { done: vec![(0, 17), (2, 19)], failed: vec![1], node: 3, began: 20, at: u64::MAX },
        ] {
            assert_eq!(Cursor::read(&cursor.to_string()), Some(cursor));
        }
        for text in ["", "1", ";;;;", "x;;0;0;0", ";;0;0;0;0"] {
            assert_eq!(Cursor::read(text), None, "{text}");
        }
    }

    #[test]
    fn a_pattern_has_no_characters_with_a_meaning() {
        assert_eq!(pattern(r"lock:us?r*[a]\-^"), r"lock:us\?r\*\[a\]\\\-\^*");
    }

    /// Returns a look at three nodes, of which the first two show a grant that they recorded at these times.
    fn look(recorded: [u64; 2]) -> Look {
        let seen = recorded.into_iter().enumerate().map(|(node, recorded)| {
            let grant =
                SeenGrant { fence: 1, recorded, since: 1, signature: String::new(), is_revoked: false };
            let foreign = Sighting::foreign(b"holder".to_vec(), 1_000, 0);
            (node, Some(Sighting { grant: Some(grant), ..foreign }))
        });
        Look { nodes: 3, seen: seen.chain([(2, None)]).collect() }
    }

    #[test]
    fn a_lock_is_on_the_pages_of_one_node_unless_it_came_to_that_node_too_late() {
        let first = Cursor::default();
        let second = Cursor { done: vec![(0, 100)], node: 1, ..Cursor::default() };
        let third = Cursor { done: vec![(1, 100)], node: 2, ..Cursor::default() };
        // On the node that is done, since before its names were read; and since later.
        for (look, cursor, expected) in [
            (look([99, 99]), &first, false),
            (look([99, 99]), &second, true),
            (look([100, 99]), &second, false),
            (look([101, 99]), &second, false),
            (look([101, 99]), &third, true),
        ] {
            assert_eq!(is_left_out(cursor, &look), expected, "{cursor}");
        }
        let free = Look { nodes: 3, seen: vec![(0, None), (1, None), (2, None)] };
        assert!(is_left_out(&first, &free));
    }
}
