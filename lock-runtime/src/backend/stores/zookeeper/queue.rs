//! The order of a queue: the contender that holds the lock, and the contender to watch, decided from the children's
//! names alone.
//!
//! Each contender watches only the nearest contender that keeps it out, so a release wakes exactly one waiter.

/// Where a contender stands among the children of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// No other contender keeps this contender out.
    First,
    /// The named contender is the nearest ahead that keeps this contender out. Nothing changes for this contender until
    /// the named contender leaves.
    Behind(&'a str),
    /// The node of this contender is gone.
    Gone,
}

/// Returns the place of `own` among `children`.
///
/// `keeps_out` decides whether `own` has to wait for a given contender ahead. Under an exclusive lock, `own` waits for
/// each contender; a reader waits only for writers.
///
/// The order is that of the sequence numbers, which the server counts across all children of a node, whatever their
/// names. A child without a number is no contender.
pub(super) fn place<'a>(children: &'a [String], own: &str, keeps_out: impl Fn(&str) -> bool) -> Place<'a> {
    if !children.iter().any(|child| child == own) {
        return Place::Gone;
    }
    let Some(own_number) = sequence(own) else { return Place::Gone };
    let nearest = children
        .iter()
        .filter_map(|child| {
            let number = sequence(child)?;
            // Which of two contenders with the same number was first is unknown, so each keeps the other out.
            (number <= own_number && child != own && keeps_out(child)).then_some((number, child))
        })
        .max();
    nearest.map_or(Place::First, |(_, child)| Place::Behind(child))
}

/// Returns whether a contender other than `own` is among `children`. If `own` holds the lock exclusively, each other
/// contender waits for it.
pub(super) fn has_others(children: &[String], own: &str) -> bool {
    children.iter().any(|child| child != own && sequence(child).is_some())
}

/// Returns the contenders among `children` in the order in which they get the lock: the first of them holds the lock.
pub(super) fn in_order(children: &[String]) -> Vec<&str> {
    let mut contenders: Vec<_> =
        children.iter().filter_map(|child| Some((sequence(child)?, child.as_str()))).collect();
    contenders.sort_unstable();
    contenders.into_iter().map(|(_, name)| name).collect()
}

/// The largest sequence number that is used.
///
/// The counter of a node's children ends at `i32::MAX`: from there on the server (3.8 and 3.9) gives that number to
/// every new child, and negative numbers to children created at the same moment. The numbers above this bound are left
/// to contenders that come before the lock's node has been made anew, and with the node its counter.
const LAST_NUMBER: i32 = i32::MAX - (1 << 20);

/// Returns whether the sequence number of the contender `own` lies outside the range that is used.
pub(super) fn is_used_up(own: &str) -> bool {
    sequence(own).is_some_and(|number| !(0..=LAST_NUMBER).contains(&number))
}

/// The text before the sequence number in our contenders' names, and in the names of foreign clients' contenders.
const MARKERS: [&str; 2] = ["lock-", "__lock__"];
/// Minimum length of a sequence number: the server writes `%010d`, which is longer for the most negative numbers.
const DIGITS: usize = 10;

/// Parses the sequence number at the end of a name, a signed 32-bit integer.
fn sequence(name: &str) -> Option<i32> {
    // After a known marker, a `-` is certainly a sign.
    let marked = MARKERS.iter().find_map(|marker| {
        let (_, number) = name.rsplit_once(marker)?;
        (number.len() >= DIGITS).then(|| number.parse().ok()).flatten()
    });
    marked.or_else(|| {
        let number = name.get(name.len().checked_sub(DIGITS)?..)?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn exclusive<'a>(children: &'a [String], own: &str) -> Place<'a> {
        place(children, own, |_| true)
    }

    #[test]
    fn the_lowest_passes_and_each_other_watches_only_the_one_before_it() {
        let children = names(&["_c_b-lock-0000000012", "_c_c-lock-0000000007", "_c_a-lock-0000000009"]);
        assert_eq!(exclusive(&children, "_c_c-lock-0000000007"), Place::First);
        assert_eq!(exclusive(&children, "_c_a-lock-0000000009"), Place::Behind("_c_c-lock-0000000007"));
        assert_eq!(exclusive(&children, "_c_b-lock-0000000012"), Place::Behind("_c_a-lock-0000000009"));
        assert_eq!(exclusive(&children, "_c_b-lock-0000000013"), Place::Gone);
        assert_eq!(exclusive(&[], "_c_b-lock-0000000012"), Place::Gone);
    }

    #[test]
    fn contenders_of_other_clients_count_and_what_is_no_contender_does_not() {
        let children = names(&[
            "0123456789abcdef0123456789abcdef__lock__0000000003",
            "leases",
            "x-0000000002",
            "config-1",
            "_c_a-lock-0000000004",
        ]);
        let (own, kazoo) = (&children[4], &children[0]);
        assert_eq!(exclusive(&children, own), Place::Behind(kazoo));
        assert_eq!(exclusive(&children, kazoo), Place::Behind("x-0000000002"));
        assert_eq!(exclusive(&children, "leases"), Place::Gone);
    }

    #[test]
    fn another_contender_waits_and_a_child_that_is_no_contender_does_not() {
        let mut children = names(&["_c_a-lock-0000000004", "leases", "config-1"]);
        assert!(!has_others(&children, "_c_a-lock-0000000004"));
        children.push("0123456789abcdef0123456789abcdef__lock__0000000005".to_owned());
        assert!(has_others(&children, "_c_a-lock-0000000004"));
    }

    #[test]
    fn contenders_are_shown_in_their_order() {
        let children = names(&[
            "0123456789abcdef0123456789abcdef__lock__0000000012",
            "leases",
            "_c_z-lock-0000000007",
            "_c_a-lock-0000000009",
        ]);
        assert_eq!(in_order(&children), [&children[2], &children[3], &children[0]]);
        assert!(in_order(&names(&["leases"])).is_empty());
    }

    #[test]
    fn two_with_one_number_keep_each_other_out() {
        let children = names(&["_c_a-lock-2147483647", "_c_b-lock-2147483647", "_c_c-lock--2147483648"]);
        assert_eq!(exclusive(&children[..2], &children[0]), Place::Behind(&children[1]));
        assert_eq!(exclusive(&children[..2], &children[1]), Place::Behind(&children[0]));
        assert_eq!(exclusive(&children, &children[2]), Place::First, "as Curator sorts them");
    }

    #[test]
    fn the_end_of_the_counter_is_not_used() {
        for used_up in
            ["_c_a-lock-2147483647", "_c_a-lock-2146435072", "_c_a-lock--2147483648", "_c_a-lock--000000005"]
        {
            assert!(is_used_up(used_up), "{used_up}");
        }
        for fine in ["_c_a-lock-0000000000", "_c_a-lock-2146435071"] {
            assert!(!is_used_up(fine), "{fine}");
        }
    }

    #[test]
    fn a_reader_waits_for_writers_only() {
        let children = names(&["w-__WRIT__0000000001", "r-__READ__0000000002", "r-__READ__0000000003"]);
        let writers = |child: &str| child.contains("__WRIT__");
        assert_eq!(place(&children, &children[2], writers), Place::Behind(&children[0]));
        assert_eq!(place(&children[1..], &children[2], writers), Place::First);
        assert_eq!(place(&children, &children[2], |_| true), Place::Behind(&children[1]));
    }
}
