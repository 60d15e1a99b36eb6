//! Acquisition, fencing and extension on a quorum of independent nodes, searched exhaustively.
//!
//! # What is modelled
//! * **The node**: `scripts.rs`, each script one atomic step. For one lock a node has the holder's key, whose value
//!   is the owner and the token of its tenure, the same token kept as a marker after the holder is gone, and a
//!   counter.
//!   * *acquire* begins a tenure if no owner holds the lock. Its token is `max(counter + 1, proposal, TIME)`, where a
//!     proposal counts as at most `TIME + slack`. The owner that asks again gets the same token. With one round trip
//!     the counter is raised to the token; with two it is only read.
//!   * *write back* raises the counter and the tenure of this owner to the token, unless the tenure has a larger one.
//!   * *extend* is a write-back that renews the lease, and that begins a tenure where no owner holds the lock and the
//!     marker is not larger than the token.
//! * **The client**: `client.rs`. Equal answers of a majority are a grant (one round trip). Otherwise the largest
//!   answer of a majority is written back to its nodes, and is granted when a majority has accepted. A majority is
//!   one of the configured nodes. The validity counts from before the first request, and does not come back once it
//!   has ended. Each client makes one attempt with one owner token, so three clients are also one client that asks
//!   anew.
//! * **The network**: requests are executed in any order, late, never, or more than once, also after their attempt
//!   has ended. An answer that is late or lost is one that the client does not decide on.
//! * **Time**, in two kinds of variants. Without leases a holder may vanish at any moment, by expiry or release, and
//!   the order of tokens must not rely on time. With leases the nodes and clients count ticks of equal length.
//!   Independently of this, the nodes may have a clock that is a lower bound on their tokens (the time floor).
//! * **Faults**: a node restarts without its data, and begins no tenure until a wait is over; or its clock jumps,
//!   and its holder expires early.
//!
//! # Why it is right
//! A grant is confirmed on a majority, on each node in a tenure whose token is not larger than the granted one, and
//! leaves a counter there that is not smaller. Two grants share such a node. On it, the token of the later tenure is
//! larger than the counter, hence than the earlier grant, and the later grant is not smaller than its tenure. This
//! needs no clock, but the counters.
//!
//! A node that lost its data votes again when its time is beyond all tokens that it can have confirmed. These are at
//! most the slack ahead of the clocks: so the wait must be longer than the slack and the difference of the clocks
//! together. For exclusion the wait must not be shorter than the longest lease; then the number of losses makes no
//! difference.
//!
//! # What the mutants show
//! * `write_back_by_owner`: an acquisition that is executed twice begins a second tenure of its owner, and another
//!   client may have held the node in between. A comparison of the owner alone does not see this.
//! * `proposal_beyond_the_slack`: the node bounds a proposal, not the client.
//! * `rejoined_without_check` is found by property E alone. The check and the deadline are two walls: a client that
//!   heeds its deadline does not need the check (`deadline_needs_no_check_for_a_newer_grant`), and one that counts a
//!   late answer is stopped by the check (`check_for_a_newer_grant_needs_no_deadline`). A loss takes the marker with
//!   it, so without a wait the check fails too (`rejoined_after_the_loss_of_a_marker`).
//! * `rejoined_before_the_wait_is_over`: a node that lost its data may have voted for another client, which still
//!   counts this vote. So it takes no part in extensions either until its wait is over.
//! * `rejoined_without_raise`: as long as counters are kept, an extension need not raise them. It does so that a
//!   token is known to a majority again after a loss.
//! * `clock_of_one_node_jumps`: one early expiry breaks exclusion, since two majorities may share this node alone.
//!   The same holds for any loss of the key without a wait, such as an eviction.
//!
//! # What is not modelled
//! More than one lock: the counter of a server is shared by its locks, which only raises it (see the variants with
//! unequal counters). The expiry of markers; a restart with older data; drift, which the deadline's margin covers;
//! more than one attempt of a client with one owner token; a second execution together with a loss, which has too
//! many states; the rest of a lease that a caller demands; the release of a minority and the retry after a split
//! vote, which concern liveness; a late extension that brings back a released hold until its lease ends, likewise;
//! revocation by marks on a majority, whose model for one server is that of the queue.
//!
//! # How to read a counter-example
//! `0[A:2 for 1, counter 2]` is node 0, held by client A with token 2 for one more tick; `free after 2` has the
//! marker of a tenure with token 2; `waits 1` is a node that votes in one tick. `A Writing 2` has sent its
//! write-back, and `A Holding 2 for 1` believes that it holds for one more tick. With a time floor a tick is 16
//! tokens. Nodes keep their places where a counter-example of a mutant is printed; elsewhere they may change places
//! between two lines.

mod canonical;
mod client;
mod properties;
mod redlock;
mod scripts;
mod state;
mod step;
mod variant;
mod variants;

pub(crate) use variants::all;
