//! Group commit: calls that are due while many others are under way share the next round trip.
//!
//! If the connection is idle, few calls are under way, or, in a cluster, none is about the same hash slot, a caller
//! makes its call itself and at once. Other calls are batched and sent by eight tasks, so an unpolled caller holds up no
//! other caller. With eight tasks, the server finds the next batch in its socket while the answers to the previous batch
//! are delivered. With two tasks, server and client spent half of the time waiting for each other to wake up; with four
//! tasks, many callers waited behind a slow network. The task of a full batch begins the next batch before the answers
//! arrive, because waiting would not make the next batch larger. Batches are sent in the order in which their operations
//! were put.
//!
//! If many tasks lock different keys, server and client together spend less time than with a hand-written `SET … NX PX`
//! and compare-and-delete. A single call costs the server about 4 µs more than the bare command, for the fence and the
//! queue. If the connection goes silent, unsent operations fail at once, and waiting callers ask again over the next
//! connection.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU32, Ordering},
    },
    task::Poll,
};

use tokio::{
    sync::{Mutex, mpsc},
    task::{unconstrained, yield_now},
};

use super::{error::Failure, net::Connection, slot::Slot};
use crate::backend::BoxFuture;

/// Upper bound on the operations in one batch; more would hold up the server for too long.
const MAX_BATCH: usize = 128;
/// Initial capacity of a batch. If each batch had room for [`MAX_BATCH`] operations from the start, its memory would be
/// returned to the operating system after the batch, and allocated again for the next batch.
const USUAL_BATCH: usize = 32;
/// Upper bound on concurrent single calls; further calls are batched. A batch of fewer calls saves nothing, and makes
/// its calls wait for each other.
const MAX_SINGLE_CALLS: usize = 8;
/// Number of counters of calls by hash slots: so many that calls about different slots seldom have the same counter.
const COUNTERS: usize = 1_024;
/// Number of sending tasks: the upper bound on the batches under way, not counting full batches.
const MAX_BATCHES_UNDER_WAY: usize = 8;

/// When calls share a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(unreachable_pub, reason = "tests and benchmarks choose it by a hidden constructor of the store")]
pub enum GroupCommit {
    /// Calls that are due while many others are under way.
    Auto,
    /// All calls that can share a round trip.
    Always,
    /// No calls.
    Never,
}

/// Sends a batch, and gives each caller its answer.
pub(crate) type SendBatch<O> = dyn Fn(Arc<Connection>, Vec<O>) -> BoxFuture<'static, ()> + Send + Sync;

/// The operations of one connection that wait for the next round trip.
#[derive(Debug)]
pub(crate) struct Batcher<O> {
    operations: mpsc::UnboundedSender<O>,
    when: GroupCommit,
    /// Each single call under way has a clone.
    alone: Arc<()>,
    /// Each batch under way and each sending task has a clone.
    under_way: Arc<()>,
    /// Numbers of the calls under way, by the slots of their locks; unused if all locks may share a call.
    of_slots: OnceLock<Arc<[AtomicU32]>>,
}

/// A call that has begun.
pub(crate) struct Begun {
    /// Whether the call should join a batch.
    pub(crate) is_due: bool,
    /// The counter of the lock's slot among the others.
    counted: Option<(Arc<[AtomicU32]>, usize)>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some((counters, of_slot)) = &self.counted {
            counters[*of_slot].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl<O: Send + 'static> Batcher<O> {
    /// Starts the tasks that send over `connection`.
    pub(crate) fn start(connection: &Arc<Connection>, when: GroupCommit, send: &Arc<SendBatch<O>>) -> Self {
        let (operations, due) = mpsc::unbounded_channel();
        let due = Arc::new(Mutex::new(due));
        let under_way = Arc::new(());
        for _ in 0..MAX_BATCHES_UNDER_WAY {
            let (due, send, under_way) = (Arc::clone(&due), Arc::clone(send), Arc::clone(&under_way));
            tokio::spawn(send_batches(Arc::downgrade(connection), due, send, under_way));
        }
        Self { operations, when, alone: Arc::new(()), under_way, of_slots: OnceLock::new() }
    }

    /// Begins a call about a lock in this slot, if only locks of one slot share a call. By default, the call should join a
    /// batch while a batch or many single calls are under way, and one of them is about the same slot: otherwise the batch
    /// would have a call for this lock alone.
    pub(crate) fn begin(&self, slot: Option<Slot>) -> Begun {
        let counted = slot.map(|slot| {
            let new = || (0..COUNTERS).map(|_| AtomicU32::new(0)).collect();
            (Arc::clone(self.of_slots.get_or_init(new)), slot.number() % COUNTERS)
        });
        let shares = |(counters, of_slot): &(Arc<[AtomicU32]>, usize)| {
            counters[*of_slot].fetch_add(1, Ordering::Relaxed) > 0
        };
        let may_share = counted.as_ref().is_none_or(shares);
        let is_busy = || {
            Arc::strong_count(&self.under_way) > 1 + MAX_BATCHES_UNDER_WAY
                || Arc::strong_count(&self.alone) > MAX_SINGLE_CALLS
        };
        let is_due = match self.when {
            GroupCommit::Auto => may_share && is_busy(),
            GroupCommit::Always => true,
            GroupCommit::Never => false,
        };
        Begun { is_due, counted }
    }

    /// Counts a single call until the returned value is dropped.
    pub(crate) fn alone(&self) -> Arc<()> {
        Arc::clone(&self.alone)
    }

    /// Puts an operation into the next batch.
    pub(crate) fn put(&self, operation: O) -> Result<(), Failure> {
        // The sending tasks are gone only if their runtime is gone, and the connection with it.
        self.operations.send(operation).map_err(|_| Failure::runtime_gone())
    }
}

/// Runs one of the sending tasks; ends with the connection.
async fn send_batches<O: Send + 'static>(
    connection: Weak<Connection>,
    due: Arc<Mutex<mpsc::UnboundedReceiver<O>>>,
    send: Arc<SendBatch<O>>,
    under_way: Arc<()>,
) {
    loop {
        let mut queue = due.lock().await;
        let mut operations = Vec::with_capacity(USUAL_BATCH);
        if queue.recv_many(&mut operations, MAX_BATCH).await == 0 {
            return;
        }
        let under_way = Arc::clone(&under_way);
        // Lets callers that were woken together with the first caller join the batch.
        yield_now().await;
        while operations.len() < MAX_BATCH
            && let Ok(operation) = queue.try_recv()
        {
            operations.push(operation);
        }
        let Some(connection) = connection.upgrade() else { return };
        let is_full = operations.len() == MAX_BATCH;
        // One poll without tokio's task budget puts all calls of the batch into the driver's queue, ahead of the next
        // batch.
        let mut batch = unconstrained(send(connection, operations));
        let answered = poll_fn(|context| Poll::Ready(Pin::new(&mut batch).poll(context))).await;
        drop(queue);
        let rest = async move {
            if answered.is_pending() {
                batch.await;
            }
            drop(under_way);
        };
        if is_full {
            tokio::spawn(rest);
        } else {
            rest.await;
        }
    }
}

/// Completes when all calls have completed. The first poll begins the calls in their order.
///
/// # Cancel safety
/// Drops the calls that have not completed.
pub(crate) async fn join_all(mut calls: Vec<BoxFuture<'_, ()>>) {
    poll_fn(|context| {
        calls.retain_mut(|call| call.as_mut().poll(context).is_pending());
        if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_joins_a_batch_only_if_another_is_about_its_slot() {
        let (operations, _due) = mpsc::unbounded_channel::<()>();
        let (alone, under_way) = (Arc::new(()), Arc::new(()));
        let batcher =
            Batcher { operations, when: GroupCommit::Auto, alone, under_way, of_slots: OnceLock::new() };
        let is_due = |name| batcher.begin(Some(Slot::of(name))).is_due;
        let many: Vec<_> = (0..MAX_SINGLE_CALLS).map(|_| batcher.alone()).collect();
        assert!(batcher.begin(None).is_due);
        let first = batcher.begin(Some(Slot::of("{a}1")));
        assert!(!first.is_due && is_due("{a}2") && !is_due("{b}1"));
        drop(first);
        assert!(!is_due("{a}2"));
        let _first = batcher.begin(Some(Slot::of("{a}1")));
        drop(many);
        assert!(!is_due("{a}2") && !batcher.begin(None).is_due, "few calls are under way");
    }
}
