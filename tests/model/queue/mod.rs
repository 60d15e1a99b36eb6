//! The hand-over of the Redis queue, searched exhaustively.
//!
//! # What is modelled
//! * **The server**: the scripts in `lock-runtime/src/backend/stores/redis/scripts` that acquire, poll, release and
//!   renew, alone and in groups, each one atomic step; `scripts.rs` here has their names and their order. Of a group
//!   the model has the effects on this lock: the fence that is minted for all its locks, and the path through the
//!   queue that follows where the lock is not simply free, or not simply held. The holder's value is owner and fence
//!   in one. A grant by hand-over lasts `min(ttl, claim window)`. A poll never makes a place. Whether a place stands in
//!   the list or in the hash makes no difference here, with one exception: `acquire.lua` does not find out that a
//!   token has joined before. The client as built sends each join once, and the variant
//!   `strict_client_needs_no_second_wall` shows that this suffices; a client that may send it twice needs the other
//!   path, in which the hash shows it, and which the loose client has here.
//! * **Limits**: a request that grants or joins is refused once its limit has passed, and its client asks again if it
//!   still waits for the answer. A limit may lie too early, while the client does not know the server's time.
//!   Variants without limits stand for a server whose clock was set back.
//! * **Open windows**: a release may leave the lock open for clients that do not queue; which one does is
//!   nondeterministic. Until the window ends, no call of ours takes the lock or hands it over.
//! * **The network**: requests, answers and pushes in any order, late, lost, or executed after the attempt that sent
//!   them has ended. Connections impose no order.
//! * **An attacker** on the channels: reads every push, delivers copies of it at any later time and any number of
//!   times, alters them, and publishes its own pushes. It knows no owner token and has no permission for any key. A
//!   push that fails a check is a hint to poll, and a poll may come at any time, so it changes nothing here.
//! * **The client**: `attempt.rs`, `place.rs`, `hold.rs`, `renewal.rs` and `cohort/`. An unanswered `join` ends the
//!   attempt, with a release in the background and a new owner token; an unanswered poll keeps it; a pushed grant is
//!   dated by the youngest-sent request that was answered `Waiting` before it; the first renewal is the claim; the
//!   release is the last request, and may be lost or executed at any time. An unpolled waiter that its process evicts
//!   is one that gives up. See [`variant::Manner`].
//! * **Time**: ticks of the server's clock. All lengths are relative, so time has no end. A client's clock has no
//!   origin, and may miss a tick (drift).
//! * **An operator** revokes a hold that it has seen, with a request that may be executed late. The hint to the holder
//!   is not modelled, because a renewal may come at any time. Force is not modelled: it makes two believers, as its
//!   documentation says.
//! * **Crashes** at any instant, clients that only try, foreign clients with `SET NX` and compare-and-delete.
//!
//! The trials `wait::…` measure waits with the store's own constants, behind dead places of every age.
//!
//! # What is not modelled
//! Loss of data (flush, eviction of one key of a lock, failover, a restored snapshot), jumps of the server's clock
//! other than the absence of limits, slot migration; how a client learns the server's time; how often the head of a
//! queue polls behind a foreign holder; the flag that others wait, and the contention notice; more than three clients
//! of ours and one foreign; different ttls in one queue; a `min_validity` above one tick; the order of waiters and
//! `max_hold` inside a process; a section that goes on after its lease ended, for which there is the fencing token.
//! Nor the repetition of a release and the connection on which it is sent: a release that is never executed is in the
//! model, and its leftovers end by themselves. The repetition relies on a release being final for its owner once the
//! limits have passed (R3). The simulation and the torture run cover the rest.
//!
//! # How to read a counter-example
//! `A0` is the present attempt of client A; `A1` and so on are its
//! attempts that have ended and left something. `held by A0:2 for 3` is the holder's key with fence 2 and three ticks
//! to live; `open for 1` is a window; `B0 queued 1 ago` is a place that was refreshed one tick ago; `minted` is the
//! counter. `Waiting { age, seen }` dates a push; `Holding { valid, .. }` is how long the client believes, and with
//! `valid: 0` it has lost the lock and has not released it yet. Where no rule is broken, or the client is loose,
//! fences are ranks: all may become smaller from one line to the next, in the same order. Where no rule is broken,
//! two clients that are alike may change names between two lines.

mod canonical;
mod client;
mod handover;
mod liveness;
mod properties;
mod scripts;
mod state;
mod step;
mod variant;
mod variants;
mod wait;

pub(crate) use variants::all;
