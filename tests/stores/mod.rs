//! The stores of this workspace: how each is reached, and how it can be hurt.
//!
//! A store is a file in this folder, and nothing else. The file has the constants `STORES` and, where something has to
//! be installed, `NEEDS`, whose names `tests/run` reads; and it submits a [`File`].

automod::dir!("tests/stores");

use lock_conformance::{Fault, Store};

use crate::support::proxy::{Flow, Proxy, Way};

/// What a file of this folder submits.
pub struct File {
    /// Whether its stores are compiled in.
    pub is_compiled_in: bool,
    /// Whether its stores need so many servers that they are tested on their own, by `LOCK_TEST_LARGE`.
    pub is_large: bool,
    pub stores: &'static [&'static dyn Store],
}

inventory::collect!(File);

/// The groups about the parts of the library above the stores, for `groups_of_another`.
pub const ABOVE_THE_STORES: &[&str] = &[
    "attribute",
    "attribute_options",
    "attribute_outcomes",
    "attribute_under_faults",
    "hold_at_least",
    "leader",
    "leader_torture",
    "multi_lock",
    "reentrance",
    "runtimes",
];

/// The groups of [`ABOVE_THE_STORES`], and the groups about connections, outages and clients that die: for a store that
/// differs from another one in its scripts alone.
pub const ALL_BUT_THE_SCRIPTS: &[&str] = &[
    "attribute",
    "attribute_options",
    "attribute_outcomes",
    "attribute_under_faults",
    "clocks",
    "cohort",
    "hold_at_least",
    "killed",
    "leader",
    "leader_torture",
    "limits",
    "loss",
    "loss_reasons",
    "multi_lock",
    "once_per",
    "once_per_under_faults",
    "outage",
    "paused",
    "reconnect",
    "reentrance",
    "runtimes",
    "shutdown",
    "status",
    "unpolled",
];

/// The groups that are not about connections: for a store that differs from another one in where its server is. An outage of
/// one server is among them; what the outage of one of several servers costs is in `tests/servers`.
pub const ALL_BUT_THE_CONNECTIONS: &[&str] = &[
    "attribute",
    "attribute_options",
    "attribute_outcomes",
    "attribute_under_faults",
    "cancellation",
    "clocks",
    "cohort",
    "exclusion",
    "fencing",
    "hold_at_least",
    "inspect",
    "interop",
    "leader",
    "leader_torture",
    "lease",
    "loss",
    "loss_reasons",
    "multi_lock",
    "once_per",
    "once_per_under_faults",
    "outage",
    "ownership",
    "reentrance",
    "revoke",
    "runtimes",
    "spoilt_key",
    "torture",
    "unpolled",
    "wait",
    "wanted",
];

/// Whether primaries are replaced while the cases that hurt no server run.
fn with_failovers() -> bool {
    std::env::var_os("LOCK_TEST_FAILOVERS").is_some()
}

/// The stores that are compiled in, by their names.
pub fn all() -> Vec<&'static dyn Store> {
    let with_large = std::env::var_os("LOCK_TEST_LARGE").is_some();
    known(|file| file.is_compiled_in && (with_large || !file.is_large))
}

/// The stores of these files, by their names.
pub fn known(chosen: impl Fn(&File) -> bool) -> Vec<&'static dyn Store> {
    let files = inventory::iter::<File>.into_iter().filter(|file| chosen(file));
    let mut stores: Vec<_> = files.flat_map(|file| file.stores).copied().collect();
    stores.sort_by_key(|store| store.name());
    stores
}

/// Does the faults that a network can have.
///
/// # Panics
/// For any other.
fn hurt_network(proxy: &Proxy, fault: Fault) {
    match fault {
        Fault::Down => {
            proxy.refuse();
            proxy.reset();
        }
        Fault::BlackHole => proxy.black_hole(),
        Fault::AnswersHeld => proxy.set(Way::ToClient, Flow::Hold),
        Fault::RequestsHeld => proxy.set(Way::ToServer, Flow::Hold),
        Fault::Slow(delay) => proxy.set(Way::ToClient, Flow::Delay(delay)),
        Fault::Cut => proxy.cut(),
        Fault::Reset => proxy.reset(),
        Fault::AnswerLost(nth) => proxy.lose_answer(nth),
        Fault::CutInRequest(nth) => proxy.cut_after(Way::ToServer, nth),
        fault => unreachable!("{fault:?} is not offered"),
    }
}
