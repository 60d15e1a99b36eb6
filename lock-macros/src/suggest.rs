//! "Did you mean …?"

/// ``; did you mean `key`?`` for the known name that is closest to what was written, or nothing when none is close.
pub(crate) fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let close = known.into_iter().map(|name| (distance(written, name), name)).min();
    match close {
        // Two edits make any two-letter name out of any other; in a longer one they are still a slip.
        Some((edits, name)) if edits <= 1 || (edits == 2 && name.chars().count() > 4) => {
            format!("; did you mean `{name}`?")
        }
        _ => String::new(),
    }
}

/// Levenshtein's distance, the row of Wagner and Fischer's table at a time.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.chars().enumerate() {
            let changed = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.chars().count()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        for (a, b, edits) in
            [("", "", 0), ("", "ab", 2), ("tll", "ttl", 1), ("kitten", "sitting", 3), ("é", "e", 1)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (edits, edits), "{a} {b}");
        }
    }

    #[test]
    fn only_what_is_close_is_suggested() {
        let known = ["key", "ttl", "auto_renew"];
        assert_eq!(did_you_mean("keys", known), "; did you mean `key`?");
        assert_eq!(did_you_mean("autorenewal", known), "");
        assert_eq!(did_you_mean("auto_reniu", known), "; did you mean `auto_renew`?");
        assert_eq!(did_you_mean("lease", known), "");
        assert_eq!(did_you_mean("x", []), "");
    }
}
