//! The table of the mutants: the changed text, and the tests that catch it.

mod command_line;
mod doctor;
mod doctor_sql;
mod host;
mod leading;
mod leases;
mod metrics;
mod periods;
mod postgres;
mod postgres_advisory;
mod postgres_hand_over;
mod redis_access;
mod redis_lease;
mod redis_queue;
mod redis_topology;
mod releases;
mod revocation;
mod revocation_of_rows_and_nodes;
mod sections;
mod sessions;
mod texts;
mod unqueued;
mod waiting;
mod wanted;
mod zookeeper;

/// A built-in mistake, made only when it is chosen at run time.
pub struct Mutant {
    pub name: &'static str,
    pub edits: &'static [Edit],
    /// Tests that fail with it and pass without it: of the conformance suite, of `lock-runtime` where they begin with
    /// `unit `, or of another program of the suite or of `lock-runtime` where they begin with its name.
    pub caught_by: &'static [&'static str],
}

/// One change of the text.
pub enum Edit {
    /// Of Rust, in a file of `lock-runtime/src`: the text occurs once in it. `mutant!()` in the new text is true
    /// while the mutant is chosen.
    Rust { file: &'static str, from: &'static str, to: &'static str },
    /// Of the scripts and statements, when they are loaded.
    Script { from: &'static str, to: &'static str },
}

/// Returns all of them.
pub fn mutants() -> impl Iterator<Item = &'static Mutant> {
    [
        command_line::MUTANTS,
        doctor::MUTANTS,
        doctor_sql::MUTANTS,
        leases::MUTANTS,
        leading::MUTANTS,
        metrics::MUTANTS,
        periods::MUTANTS,
        waiting::MUTANTS,
        wanted::MUTANTS,
        releases::MUTANTS,
        revocation::MUTANTS,
        revocation_of_rows_and_nodes::MUTANTS,
        sections::MUTANTS,
        sessions::MUTANTS,
        texts::MUTANTS,
        host::MUTANTS,
        postgres::MUTANTS,
        postgres_advisory::MUTANTS,
        postgres_hand_over::MUTANTS,
        redis_queue::MUTANTS,
        redis_lease::MUTANTS,
        redis_access::MUTANTS,
        redis_topology::MUTANTS,
        unqueued::MUTANTS,
        zookeeper::MUTANTS,
    ]
    .into_iter()
    .flatten()
}
