//! What rustc says to those who make a mistake; one file for each rule.
//!
//! The texts are those of the toolchain that the workspace is built with. After a change on purpose,
//! `TRYBUILD=overwrite cargo test -p lock-macros --test ui` writes them again.

#[test]
fn mistakes_are_explained() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
