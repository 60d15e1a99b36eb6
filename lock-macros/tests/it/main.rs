//! The macros in code that compiles: `lock_key!`, and the attribute among other names and lints.

mod accepted {
    pub(crate) mod every_lint;
    pub(crate) mod facade;
    pub(crate) mod no_prelude;
    pub(crate) mod unused_allowed;
}
mod label;
mod lock_key;
mod manager;

#[test]
fn the_attribute_works_in_a_crate_that_names_the_runtime_otherwise() {
    accepted::facade::main();
}

#[test]
fn the_attribute_works_where_all_other_names_are_taken() {
    accepted::no_prelude::main();
}

#[test]
fn the_attribute_leaves_an_unused_parameter_to_the_lints_of_its_function() {
    accepted::unused_allowed::main();
}
