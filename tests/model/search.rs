//! Runs the search of one variant and judges its result.

use std::{collections::BTreeSet, fmt::Write as _, sync::atomic::Ordering::Relaxed, time::Instant};

use libtest_mimic::Failed;
use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::{
    handover::Handover,
    properties::ALL,
    state::{NEVER, State},
    variant::Variant,
};

/// Far more states than any search here has; a search without an end stops here.
const TOO_MANY: usize = 2_000_000_000;

/// If this is set, counter-examples are printed for broken protocols too; for right ones they always are.
pub(crate) const TRACE: &str = "LOCK_MODEL_TRACE";

/// Asserts that every reachable state is checked, and no property is violated.
pub(crate) fn holds(variant: Variant) -> Result<(), Failed> {
    let name = variant.name;
    let begun = Instant::now();
    let checker = Handover::new(variant)
        .checker()
        .target_state_count(TOO_MANY)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let (unique, tally) = (checker.unique_state_count(), &checker.model().tally);
    println!(
        "model: {name}: {} states, {unique} unique, depth {}, {} entries on a push, longest wait {} of {}, {:.1} s",
        checker.state_count(),
        checker.max_depth(),
        tally.by_push.load(Relaxed),
        tally.longest_wait.load(Relaxed),
        checker.model().wait_bound(),
        begun.elapsed().as_secs_f32(),
    );
    if let Some(property) = ALL.into_iter().find(|p| checker.discovery(p).is_some()) {
        let path = checker.discovery(property).expect("found above");
        return Err(format!("{property}: violated\n{}", trace(path)).into());
    }
    if tally.expanded.load(Relaxed) != unique {
        return Err(format!("cut: {} of {unique} states checked", tally.expanded.load(Relaxed)).into());
    }
    let variant = &checker.model().variant;
    let must_occur = [
        (true, &tally.by_push, "entry on a push"),
        (variant.clients.iter().any(|role| role.groups), &tally.in_groups, "entry with a group"),
        (variant.times.limit != NEVER, &tally.repeated, "repetition of a late request"),
        (variant.opens, &tally.found_open, "call that found the lock open"),
        (variant.attacked, &tally.forged, "forged message"),
    ];
    match must_occur.iter().find(|(must, count, _)| *must && count.load(Relaxed) == 0) {
        Some((_, _, what)) => Err(format!("no {what}: the variant shows nothing about it").into()),
        None => Ok(()),
    }
}

/// Asserts that some state breaks `property`, and that the shortest path to such a state has `steps` steps.
pub(crate) fn is_caught(variant: &Variant, property: &'static str, steps: usize) -> Result<(), Failed> {
    let name = variant.name;
    let begun = Instant::now();
    let (mut shortest, mut states) = (None, 0);
    // The checker keeps the last path that it meets before it stops, so it is asked for a shorter one until none is.
    loop {
        let checker = shorter_than(variant.clone(), property, shortest.as_ref().map(steps_in));
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
    let taken = steps_in(&path);
    println!(
        "model: {name}: {property}: caught in {taken} steps, {states} states, {:.1} s",
        begun.elapsed().as_secs_f32()
    );
    if std::env::var_os(TRACE).is_some() {
        println!("{}", trace(path));
    }
    if taken == steps { Ok(()) } else { Err(format!("{property}: {taken} steps, not {steps}").into()) }
}

type Found = Path<State, <Handover as Model>::Action>;

/// A search for a violation of `property` in fewer steps, if there is a limit.
fn shorter_than(variant: Variant, property: &'static str, limit: Option<usize>) -> impl Checker<Handover> {
    let search = Handover::new(variant)
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

fn steps_in(path: &Found) -> usize {
    path.clone().into_actions().len()
}

/// A counter-example, one step and one state a line.
fn trace(path: Found) -> String {
    let mut text = String::new();
    for (number, (state, step)) in path.into_vec().into_iter().enumerate() {
        let _ = writeln!(text, "       {state}");
        if let Some(step) = step {
            let _ = writeln!(text, "  {:>2}. {step}", number + 1);
        }
    }
    text
}
