//! The class of a lock: what the locks of one place in the program have in common, for metrics and traces.

use std::{collections::BTreeSet, sync::Mutex};

use crate::sync::lock;

/// The class of a lock for which the program states none.
pub const OTHER: &str = "other";
/// Upper bound on the templates that are remembered for the rest of the program. A program has about as many as it has
/// routes; one that makes a template for each request would otherwise use up its memory.
const MAX_TEMPLATES: usize = 1_024;

/// Returns the class of a template that is not known at compile time. Equal templates have one class; beyond the first
/// 1,024 different ones, the class is `other`.
#[must_use]
pub fn of_template(template: &str) -> &'static str {
    static TEMPLATES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut templates = lock(&TEMPLATES);
    if let Some(known) = templates.get(template) {
        return known;
    }
    if templates.len() >= MAX_TEMPLATES {
        return OTHER;
    }
    let class: &'static str = Box::leak(template.into());
    templates.insert(class);
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_remembered_once_and_within_a_bound() {
        let class = of_template("user:<id>");
        assert_eq!(class, "user:<id>");
        assert!(std::ptr::eq(class, of_template(&String::from("user:<id>"))), "remembered twice");
        (0..MAX_TEMPLATES).for_each(|number| _ = of_template(&number.to_string()));
        assert_eq!(of_template("one more"), OTHER);
        assert_eq!(of_template("user:<id>"), "user:<id>", "forgotten");
    }
}
