//! The next holder in a row of PostgreSQL, beside a user who may only read, searched exhaustively.
//!
//! # What is modelled
//! * **The row**: its holder with a lease, and the waiter that the release grants the lock to, with a time until when. Each
//!   statement is one atomic step: see `sql/acquire.sql`, `release.sql` and `hand_over.sql` of the store.
//! * **The clients**: the first one holds the lock, the second one waits for it, and the third one makes attempts. They ask,
//!   wait as the next holder, believe a grant by an answer or by a notification, renew, check in with a transaction, give up or
//!   release, and repeat their release.
//! * **The network**: statements are executed in any order, late or never; answers and notifications come late or never.
//! * **The reader** knows whatever stands in the row, and in each statement from the moment at which it is sent. He sends each
//!   notification that he can make of that, with each version.
//! * **Time**: leases, places and the deadlines of clients are counted in ticks of equal length. The clock that makes
//!   versions goes on with each grant.
//!
//! # What is not modelled
//! Revocation (the marks of holders, and their withdrawal; built-in mistakes and the suite cover them), loss of data, clocks
//! that jump, the margin for drift, the cohort inside a process, whose tokens count up from the version.

mod protocol;
mod state;

use libtest_mimic::Trial;

use self::protocol::{Break, Row, T, X};
use crate::search;

pub(crate) fn all() -> Vec<Trial> {
    let right = search::holds("row::right::one_waiter".into(), || Row::new(false, None));
    let long =
        search::holds("row::long::two_waiters".into(), || Row::new(true, None)).with_ignored_flag(true);
    let mutants = [
        ("secret_in_the_row", Break::SecretInTheRow, X, 4),
        ("version_without_a_bound", Break::AnyVersion, T, 10),
        ("validity_beyond_the_lease_of_the_holder", Break::BeyondTheLease, X, 10),
        ("validity_beyond_the_place", Break::BeyondThePlace, X, 10),
        ("validity_dated_by_the_answer", Break::DatedByAnswer, X, 10),
        ("secret_in_a_release_without_a_grant", Break::SecretInFree, X, 6),
        ("secret_beside_a_release_without_a_grant", Break::SecretBesideFree, X, 9),
        ("secret_of_a_holder_with_an_open_transaction", Break::SecretOfCheckedIn, X, 6),
    ];
    let mutants = mutants.map(|(name, broken, property, steps)| {
        search::is_caught(
            format!("row::mutant::{name}"),
            move || Row::new(false, Some(broken)),
            property,
            steps,
        )
    });
    let second = search::is_caught(
        "row::long::mutant::version_that_a_waiter_before_may_have_believed".into(),
        || Row::new(true, Some(Break::SeenWithoutTheClock)),
        T,
        11,
    )
    .with_ignored_flag(true);
    [right, long, second].into_iter().chain(mutants).collect()
}
