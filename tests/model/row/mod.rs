//! The next holder in a row of PostgreSQL, beside a user who may only read, and beside an operator, searched exhaustively.
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
//! * **An operator** revokes one hold, by the version that the row shows, with a statement that is executed late or never:
//!   see `sql/revoke.sql`. The version in the row's column `revoked` is the mark. From then on, `renew.sql`, `take.sql` and
//!   `acquire.sql` refuse the holder, and the release grants the lock to the next holder as before. No statement removes a
//!   mark: the next grant has another version, and so has no mark. A check-in may succeed beside a mark, as in a
//!   transaction whose snapshot is older. The hint to the holder is not modelled, because a renewal may come without a hint.
//! * **Time**: leases, places and the deadlines of clients are counted in ticks of equal length. The clock that makes
//!   versions goes on with each grant.
//!
//! # What is not modelled
//! Revocation by force (`sql/force.sql`), which makes two believers, as the documentation of `revoke_by_force` says; loss of
//! data, clocks that jump, the margin for drift, the cohort inside a process, whose tokens count up from the version.

mod protocol;
mod state;
mod step;

use libtest_mimic::Trial;

use self::protocol::{Break, N, Row, T, Third, V, X};
use crate::search;

/// The name of a mutant, the rule that it breaks, the property that catches it, and the steps until then.
type Mutant = (&'static str, Break, &'static str, usize);

const MUTANTS: [Mutant; 8] = [
    ("secret_in_the_row", Break::SecretInTheRow, X, 4),
    ("version_without_a_bound", Break::AnyVersion, T, 10),
    ("validity_beyond_the_lease_of_the_holder", Break::BeyondTheLease, X, 10),
    ("validity_beyond_the_place", Break::BeyondThePlace, X, 10),
    ("validity_dated_by_the_answer", Break::DatedByAnswer, X, 10),
    ("secret_in_a_release_without_a_grant", Break::SecretInFree, X, 6),
    ("secret_beside_a_release_without_a_grant", Break::SecretBesideFree, X, 9),
    ("secret_of_a_holder_with_an_open_transaction", Break::SecretOfCheckedIn, X, 6),
];

/// Mutants of the rules about revocation, beside an operator.
const OF_REVOCATION: [Mutant; 5] = [
    ("renewal_of_a_revoked_hold", Break::RenewsRevoked, V, 5),
    ("request_of_the_holder_of_a_revoked_hold", Break::GrantsRevoked, V, 9),
    ("revocation_that_frees", Break::RevocationFrees, X, 4),
    ("revocation_without_compare", Break::RevokesUncompared, N, 6),
    ("mark_that_stays", Break::MarkStays, N, 6),
];

pub(crate) fn all() -> Vec<Trial> {
    let of_revocation = |broken| Row::new(Third::IsAbsent, broken).beside_operator();
    let right = [
        search::holds("row::right::one_waiter".into(), || Row::new(Third::Tries, None)),
        search::holds("row::right::revoked".into(), move || of_revocation(None)),
    ];
    let long = [
        search::holds("row::long::two_waiters".into(), || Row::new(Third::Waits, None)),
        search::holds("row::long::revoked".into(), || Row::new(Third::Tries, None).beside_operator()),
        search::is_caught(
            "row::long::mutant::version_that_a_waiter_before_may_have_believed".into(),
            || Row::new(Third::Waits, Some(Break::SeenWithoutTheClock)),
            T,
            11,
        ),
    ];
    let long = long.map(|trial| trial.with_ignored_flag(true));
    let mutants = MUTANTS.map(|mutant| is_caught(mutant, |broken| Row::new(Third::Tries, broken)));
    let of_revocation = OF_REVOCATION.map(|mutant| is_caught(mutant, of_revocation));
    right.into_iter().chain(long).chain(mutants).chain(of_revocation).collect()
}

fn is_caught((name, broken, property, steps): Mutant, row: fn(Option<Break>) -> Row) -> Trial {
    search::is_caught(format!("row::mutant::{name}"), move || row(Some(broken)), property, steps)
}
