//! The hand-over of the Redis queue, searched exhaustively.
//!
//! # What is modelled
//! * **The server**: the scripts `acquire`, `release`, `renew` and those of groups as they stand in
//!   `lock-runtime/src/backend/redis/scripts`, each one atomic step; `scripts.rs` here has their names and their
//!   order. Of a group stands here what it does with this lock: the fence that it mints for all its locks, and the way
//!   through the queue that follows where the lock is not simply free, or not simply held. A release may leave the
//!   lock free before those who wait, for clients that do not queue; which one does so is left open. The holder's value is owner and fence in one; one counter mints, also in vain; a grant that is handed
//!   over lasts `min(ttl, age of the place + claim window)`; a poll never makes a place.
//! * **The network**: requests, answers and pushes in any order, late, lost, or executed after the attempt that sent
//!   them has ended.
//! * **The client**: `attempt.rs`, `place.rs`, `hold.rs`, `keeper.rs` and `cohort.rs`. An unanswered `join` ends the
//!   attempt, with a release in the background and a new owner token; an unanswered poll keeps it; a pushed grant is
//!   dated by the youngest-sent request that was answered «waiting» before it; the first renewal is the claim; the
//!   release is the last thing sent, and may be lost or executed at any time. See [`variant::Manner`].
//! * **Time**: ticks of the server's clock. All lengths are relative, so time has no end. A client's clock has no
//!   origin, and may miss a tick (drift).
//! * **Crashes** at any instant, clients that only try, foreign clients with `SET NX` and compare-and-delete.
//!
//! The variants `right::…` are looked at in every reachable state (as far as 64-bit fingerprints tell states
//! apart), and that they were is asserted. The variants `mutant::…` break one rule each, and must be caught by the
//! property and in the number of steps that the table in `variants.rs` says: so the model does see such mistakes.
//! The properties are listed in `handover.rs`.
//!
//! # What is not
//! Loss of data (flush, eviction, failover, a restored snapshot), jumps of the server's clock, slot migration; more
//! than three clients of ours and one foreign; different ttls in one queue; a `min_validity` above one tick; the
//! order of waiters and `max_hold` inside a process; a section that goes on after its lease ended, which is what the
//! fencing token is for. The repetition of a release and the connection on which it is sent are not: a release that
//! is never executed is in the model, and what it leaves behind ends by itself. The simulation and the torture run
//! have these.
//!
//! # How to run it
//! ```text
//! cargo test --features model --test model                      all, in about half a minute on two cores
//! cargo test --features model --test model -- mutant            the mutants
//! cargo test --release --features model --test model -- --ignored    the long searches
//! LOCK_MODEL_TRACE=1 cargo test --features model --test model -- --exact mutant::release_without_compare
//! ```
//!
//! # How to read a counter-example
//! Steps are numbered, and between them stands what is true then. `A0` is the present attempt of client A, `A1` and
//! so on are attempts of it that have ended and left something. `held by A0:2 for 3` is the holder's key with fence 2
//! and three ticks to live; `B0 queued 1 ago` is a place that was refreshed one tick ago; `minted` is the counter.
//! `Waiting { age, seen }` is what a push will be dated by; `Holding { valid, .. }` is how long the client believes,
//! and with `valid: 0` it has lost the lock and has not released it yet. Where no rule is broken, or the client is
//! loose, fences are ranks: all may become smaller from one line to the next, in the same order. Where no rule is
//! broken two clients that are alike may change names between two lines.

mod canonical;
mod client;
mod handover;
mod liveness;
mod scripts;
mod search;
mod state;
mod variant;
mod variants;
mod wait;

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, variants::all()).exit_code()
}
