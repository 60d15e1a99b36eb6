//! Runs the search of one variant and judges its result.

use std::{
    collections::BTreeSet,
    fmt::{Debug, Display, Write as _},
    hash::Hash,
    time::Instant,
};

use libtest_mimic::{Failed, Trial};
use stateright::{Checker, HasDiscoveries, Model, Path};

/// Far more states than any search here has; a search without an end stops here.
const TOO_MANY: usize = 2_000_000_000;

/// If this is set, counter-examples are printed for broken protocols too; for right ones they always are.
const TRACE: &str = "LOCK_MODEL_TRACE";

/// Whether counter-examples of broken protocols are printed.
pub(crate) fn traces() -> bool {
    std::env::var_os(TRACE).is_some()
}

/// A model and the statistics of its search.
pub(crate) trait Searched:
    Model<
        State: Clone + Debug + Display + Hash + PartialEq + Send + Sync,
        Action: Clone + Debug + Display + PartialEq + Send + Sync,
    > + Send
    + Sync
    + 'static
{
    /// Number of states whose steps were all taken.
    fn expanded(&self) -> usize;

    /// Further figures for the printed line.
    fn figures(&self) -> String;

    /// The events that the variant is about, and their number so far.
    fn must_occur(&self) -> Vec<(&'static str, usize)>;
}

/// Asserts that every reachable state is checked, and no property is violated.
pub(crate) fn holds<M: Searched>(name: String, model: impl FnOnce() -> M + Send + 'static) -> Trial {
    Trial::test(name.clone(), move || search_all(&name, model()))
}

/// Asserts that some state breaks `property`, and that the shortest path to such a state has `steps` steps.
pub(crate) fn is_caught<M: Searched>(
    name: String,
    model: impl Fn() -> M + Send + 'static,
    property: &'static str,
    steps: usize,
) -> Trial {
    Trial::test(name.clone(), move || {
        let taken = search_shortest(&name, model, property)?;
        if taken == steps { Ok(()) } else { Err(format!("{property}: {taken} steps, not {steps}").into()) }
    })
}

fn search_all<M: Searched>(name: &str, model: M) -> Result<(), Failed> {
    let begun = Instant::now();
    let checker = model
        .checker()
        .target_state_count(TOO_MANY)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let (unique, model) = (checker.unique_state_count(), checker.model());
    println!(
        "{name}: {} states, {unique} unique, depth {}, {}, {:.1} s",
        checker.state_count(),
        checker.max_depth(),
        model.figures(),
        begun.elapsed().as_secs_f32(),
    );
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        return Err(format!("{property}: violated\n{}", trace::<M>(path)).into());
    }
    if model.expanded() != unique {
        return Err(format!("cut: {} of {unique} states checked", model.expanded()).into());
    }
    match model.must_occur().into_iter().find(|(_, count)| *count == 0) {
        Some((what, _)) => Err(format!("no {what}: the variant shows nothing about it").into()),
        None => Ok(()),
    }
}

/// Number of steps of the shortest path to a state that breaks `property`.
fn search_shortest<M: Searched>(
    name: &str,
    model: impl Fn() -> M,
    property: &'static str,
) -> Result<usize, Failed> {
    let begun = Instant::now();
    let (mut shortest, mut states) = (None, 0);
    // The checker keeps the last path that it meets before it stops, so it is asked for a shorter one until none is.
    loop {
        let checker = shorter_than(model(), property, shortest.as_ref().map(steps_in::<M>));
        states += checker.state_count();
        match checker.discovery(property) {
            Some(path) => shortest = Some(path),
            None if shortest.is_some() => break,
            None => {
                let found: Vec<_> = checker.discoveries().into_keys().collect();
                return Err(format!("not caught: {property}; found instead: {found:?}").into());
            }
        }
    }
    let path = shortest.expect("the loop ends with one");
    let taken = steps_in::<M>(&path);
    println!(
        "{name}: {property}: caught in {taken} steps, {states} states, {:.1} s",
        begun.elapsed().as_secs_f32()
    );
    if traces() {
        println!("{}", trace::<M>(path));
    }
    Ok(taken)
}

type Found<M> = Path<<M as Model>::State, <M as Model>::Action>;

/// A search for a violation of `property` in fewer steps, if there is a limit.
fn shorter_than<M: Searched>(model: M, property: &'static str, limit: Option<usize>) -> impl Checker<M> {
    let search = model
        .checker()
        .target_state_count(TOO_MANY)
        .finish_when(HasDiscoveries::AllOf(BTreeSet::from([property])));
    // Depths are counted in states, and a state at the limit is not expanded.
    let search = match limit {
        Some(steps) => search.target_max_depth(steps + 1),
        None => search,
    };
    search.spawn_bfs().join()
}

fn steps_in<M: Searched>(path: &Found<M>) -> usize {
    path.clone().into_actions().len()
}

/// A counter-example, one step and one state a line.
fn trace<M: Searched>(path: Found<M>) -> String {
    let mut text = String::new();
    for (number, (state, step)) in path.into_vec().into_iter().enumerate() {
        let _ = writeln!(text, "       {state}");
        if let Some(step) = step {
            let _ = writeln!(text, "  {:>2}. {step}", number + 1);
        }
    }
    text
}
