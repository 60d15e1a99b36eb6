//! "Did you mean …?"

/// Returns ``; did you mean `key`?`` with the known name closest to `written`, or an empty text if none is close.
pub(crate) fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let close = known.into_iter().map(|name| (distance(written, name), name)).min();
    match close {
        // Two edits turn any two-letter name into any other; in a longer name they are still a slip.
        Some((edits, name)) if edits <= 1 || (edits == 2 && name.chars().count() > 4) => {
            format!("; did you mean `{name}`?")
        }
        _ => String::new(),
    }
}

/// Counts the letters that are changed, inserted, left out or swapped with a neighbour: the optimal string alignment
/// distance, which is Damerau's without editing a part twice.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let changed = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let edited = changed.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    edited.min(table[i - 2][j - 2] + 1)
                } else {
                    edited
                }
            };
        }
    }
    table[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        for (a, b, edits) in [
            ("", "", 0),
            ("", "ab", 2),
            ("tll", "ttl", 1),
            ("wiat", "wait", 1),
            ("kye", "key", 1),
            ("abcd", "badc", 2),
            ("kitten", "sitting", 3),
            ("é", "e", 1),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (edits, edits), "{a} {b}");
        }
    }

    #[test]
    fn only_what_is_close_is_suggested() {
        let known = ["key", "ttl", "wait", "auto_renew"];
        assert_eq!(did_you_mean("wiat", known), "; did you mean `wait`?");
        assert_eq!(did_you_mean("keys", known), "; did you mean `key`?");
        assert_eq!(did_you_mean("autorenewal", known), "");
        assert_eq!(did_you_mean("auto_reniu", known), "; did you mean `auto_renew`?");
        assert_eq!(did_you_mean("lease", known), "");
        assert_eq!(did_you_mean("x", []), "");
    }
}
