//! The error messages of rustc for wrong uses of the macros; one file for each rule.
//!
//! Without a case that compiles, `trybuild` checks the dependencies instead of building them, and all cases at once;
//! what must compile is in `it/accepted`.
//!
//! The texts are those of the toolchain that the workspace is built with. After a change on purpose,
//! `TRYBUILD=overwrite cargo test -p lock-macros --test ui` writes them again.

#[test]
fn mistakes_are_explained() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/fail/*.rs");
}
