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
