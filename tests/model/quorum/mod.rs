//! Acquisition, fencing, extension and revocation on a quorum of independent nodes, searched exhaustively.
//!
//! # What is modelled
//! * **The node**: `scripts.rs`, each script one atomic step. For one lock a node has the holder's key, whose value
//!   is the owner, the token of its tenure and perhaps a mark, and a counter that outlives the key.
//!   * *acquire* begins a tenure if no owner holds the lock. Its token is `max(counter + 1, proposal, TIME)`, where a
//!     proposal counts as at most `TIME + slack`. The owner that asks again gets the same token. With one round trip
//!     the counter is raised to the token; with two it is only read.
//!   * *write back* raises the counter and the tenure of this owner to the token, unless the tenure has a larger one.
//!   * *extend* renews the lease where the owner holds the lock, and raises the counter to the token. Where no owner
//!     holds the lock and the counter is not larger than the token, *extend* begins a tenure. These are `renew.lua`
//!     and `join.lua`.
//!   * *revoke* marks the holder's key where the owner holds the lock, and raises the counter above the token. The
//!     node extends this tenure no more. The tenure ends as without the mark.
//! * **The client**: `client.rs`. Equal answers of a majority are a grant (one round trip). Otherwise the largest
//!   answer of a majority is written back to its nodes, and is granted when a majority has accepted. A majority is
//!   one of the configured nodes. The validity counts from before the first request, and does not come back once it
//!   has ended. Each client makes one attempt with one owner token, so three clients are also one client that asks
//!   anew. As built, a node that lacks the lease is joined only after a majority has renewed, and its answer does
//!   not count; here such a node is joined and counted at once.
//! * **An operator** names a hold by its token where a node shows this token, and sends the order to mark the hold to
//!   all nodes. The hold is revoked once a majority has executed the order.
//! * **The network**: requests are executed in any order, late, never, or more than once, also after their attempt
//!   has ended. An answer that is late or lost is one that the client does not decide on.
//! * **Time**, in two kinds of variants. Without leases a holder may vanish at any moment, by expiry or release, and
//!   the order of tokens must not rely on time. With leases the nodes and clients count ticks of equal length.
//!   Independently of this, the nodes may have a clock that is a lower bound on their tokens (the time floor).
//! * **Faults**: a node restarts without its data, and begins no tenure until a wait is over; its clock jumps, and its
//!   holder expires early; or the node restarts with older data, and has lost a mark.
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
//! A revocation ends the renewals once a majority of the nodes has the mark, and another client is granted the lock
//! only after a release or after the deadline: this is what the documentation promises. Property V is the former: an
//! extension that is sent after the last mark of the majority fails, because each majority has a node with the mark.
//! On this node, the tenure ends with the mark, and the raised counter keeps the token from beginning another tenure.
//! A node that has lost the mark with all its data begins no tenure until its wait is over, and by then the hold has
//! ended. Property X is the latter, because a mark frees no node.
//!
//! # What the mutants show
//! * `write_back_by_owner`: an acquisition that is executed twice begins a second tenure of its owner, and another
//!   client may have held the node in between. A comparison of the owner alone does not see this.
//! * `proposal_beyond_the_slack`: the node bounds a proposal, not the client.
//! * `rejoined_without_check` is found by property E alone. The check and the deadline are two walls: a client that
//!   heeds its deadline does not need the check (`deadline_needs_no_check_for_a_newer_grant`), and one that counts a
//!   late answer is stopped by the check (`check_for_a_newer_grant_needs_no_deadline`). A loss takes the counter with
//!   it, so without a wait the check fails too (`rejoined_after_the_loss_of_a_counter`).
//! * `rejoined_before_the_wait_is_over`: a node that lost its data may have voted for another client, which still
//!   counts this vote. So it takes no part in extensions either until its wait is over.
//! * `rejoined_without_raise`: as long as counters are kept, an extension need not raise them. It does so that a
//!   token is known to a majority again after a loss.
//! * `extension_by_owner` is `renew.lua` as built: the script compares the owner, and not the token of the tenure. A
//!   late acquisition may begin a second tenure of its owner after a newer grant, or after the mark of a revocation
//!   (`revoked_and_extended_by_owner`), and this tenure would be extended. For exclusion the deadline is another wall
//!   (`deadline_needs_no_comparison_of_tokens`). The end of a revoked hold needs that no acquisition is executed a
//!   lease after it was sent (`revoked_and_extended_by_owner_within_the_limit`), and as built no node executes it then.
//! * `mark_without_a_raise`: once the marked key has expired, the node would take the lease again.
//! * `mark_lost_and_wait_shorter_than_a_lease`: a node that has forgotten a mark must not vote before the hold has
//!   ended. As built, too: a majority may have confirmed an extension before the marks, and this extension may find
//!   later that the node lacks the lease. `mark_lost_and_rejoined_before_the_wait_is_over` shows that joins must wait
//!   as votes do.
//! * `mark_missing_in_older_data`: a renewal needs no vote, so no wait helps where a node has kept the lease and lost
//!   the mark. If only a bare majority was marked, the hold goes on as if it had not been revoked. Exclusion is not
//!   affected.
//! * `clock_of_one_node_jumps`: one early expiry breaks exclusion, since two majorities may share this node alone.
//!   The same holds for any loss of the key without a wait, such as an eviction.
//!
//! # What is not modelled
//! More than one lock, because each has a counter of its own; the expiry of counters; a restart with older data, but
//! for the loss of a mark; drift, which the deadline's margin covers; more than one attempt of a client with one
//! owner token; a second execution together with a loss, which has too many states; the rest of a lease that a caller
//! demands; the release of a minority and the retry after a split vote, which concern liveness; a late extension that
//! brings back a released hold until its lease ends, likewise.
//!
//! Of revocations: force, which makes two believers, as its documentation says; the notice to the holder, because an
//! extension may come at any time; that a refused holder gives up; an operator who names a hold by the token of a
//! node that missed the write-back; a node that loses its mark before the others have theirs, and is counted by the
//! operator all the same, because an order takes seconds and the wait is longer.
//!
//! # How to read a counter-example
//! `0[A:2 for 1, counter 2]` is node 0, held by client A with token 2 for one more tick; `A:2 revoked` has the mark
//! of a revocation; `waits 1` is a node that votes in one tick. `A Writing 2` has sent its write-back, `A Holding 2
//! for 1` believes that it holds for one more tick, and `A Holding 2, revoked` is marked on a majority. With a time
//! floor a tick is 16 tokens. Nodes keep their places where a counter-example of a mutant is printed; elsewhere they
//! may change places between two lines.

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
