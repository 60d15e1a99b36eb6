//! The messages of rustc for wrong uses of the macros, one file for each rule.
//!
//! While no case compiles, `trybuild` only checks the dependencies instead of building them, and all cases at once;
//! code that must compile is in `it/accepted`.
//!
//! The texts are those of the workspace's toolchain. After an intended change,
//! `TRYBUILD=overwrite cargo test -p lock-macros --test ui` rewrites them.

#[test]
fn mistakes_are_explained() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/fail/*.rs");
}

/// rustc cannot name the feature of lock-runtime that is missing, so the pages have its words, for a search.
#[test]
fn the_pages_have_the_words_of_rustc_for_a_missing_feature() {
    let words =
        include_str!("ui/fail/no_axum_feature.stderr").lines().filter(|line| line.starts_with("error"));
    let pages = [include_str!("../src/distributed_lock.md"), include_str!("../../lock-runtime/src/error.rs")];
    assert_eq!(words.clone().count(), 2);
    for line in words {
        assert!(pages.iter().all(|page| page.contains(line)), "{line}");
    }
}
