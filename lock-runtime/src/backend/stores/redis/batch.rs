//! Group commit: what is due while many calls are under way shares the next round trip.
//!
//! A call that finds the connection idle, or few calls on it, is made at once by its caller. Others are put together, and
//! sent by tasks of their own, so an unpolled caller holds up no other: two tasks, so that the server has one batch
//! to work on while the answers of the other are given out. The next batch does not wait for the answers of one that is
//! full: it would not grow meanwhile. What is put behind something else is executed after it.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use tokio::{
    sync::{Mutex, mpsc},
    task::{unconstrained, yield_now},
};

use super::{config::GroupCommit, error::Failure, net::Connection};
use crate::backend::BoxFuture;

/// The most operations in one batch; more would hold up the server for too long.
const MAX_BATCH: usize = 128;
/// The most single calls at a time; above it calls are batched. A batch of fewer saves nothing, and they would
/// wait for each other.
const FEW: usize = 8;
/// The most batches under way at the same time, full ones not counted.
const BATCHES: usize = 2;

/// Sends a batch, and gives each caller its answer.
pub(crate) type SendBatch<O> = dyn Fn(Arc<Connection>, Vec<O>) -> BoxFuture<'static, ()> + Send + Sync;

/// The operations of one connection that wait for the next round trip.
pub(crate) struct Batcher<O> {
    operations: mpsc::UnboundedSender<O>,
    when: GroupCommit,
    /// Calls that are made alone, now.
    alone: AtomicUsize,
    /// Batches that are under way.
    under_way: Arc<AtomicUsize>,
}

impl<O: Send + 'static> Batcher<O> {
    /// Starts the tasks, which send over `connection`.
    pub(crate) fn start(connection: &Arc<Connection>, when: GroupCommit, send: &Arc<SendBatch<O>>) -> Self {
        let (operations, due) = mpsc::unbounded_channel();
        let due = Arc::new(Mutex::new(due));
        let under_way = Arc::new(AtomicUsize::new(0));
        for _ in 0..BATCHES {
            let (due, send, under_way) = (Arc::clone(&due), Arc::clone(send), Arc::clone(&under_way));
            tokio::spawn(send_batches(Arc::downgrade(connection), due, send, under_way));
        }
        Self { operations, when, alone: AtomicUsize::new(0), under_way }
    }

    /// Whether to go with a batch: unless it is set otherwise, while another one is under way, or many calls are.
    pub(crate) fn is_due(&self) -> bool {
        match self.when {
            GroupCommit::Auto => {
                self.under_way.load(Ordering::Acquire) > 0 || self.alone.load(Ordering::Acquire) >= FEW
            }
            GroupCommit::Always => true,
            GroupCommit::Never => false,
        }
    }

    /// Counts a call that is made alone, until the answer is dropped.
    pub(crate) fn alone(&self) -> Alone<'_> {
        self.alone.fetch_add(1, Ordering::AcqRel);
        Alone(&self.alone)
    }

    /// Puts an operation into the next batch.
    pub(crate) fn put(&self, operation: O) -> Result<(), Failure> {
        // Without its tasks the runtime is gone, and with it the connection.
        self.operations.send(operation).map_err(|_| Failure::runtime_gone())
    }
}

impl<O> fmt::Debug for Batcher<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

/// A call that is made alone.
pub(crate) struct Alone<'a>(&'a AtomicUsize);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One of the tasks: ends with its connection.
async fn send_batches<O: Send + 'static>(
    connection: Weak<Connection>,
    due: Arc<Mutex<mpsc::UnboundedReceiver<O>>>,
    send: Arc<SendBatch<O>>,
    under_way: Arc<AtomicUsize>,
) {
    loop {
        let mut operations = Vec::with_capacity(MAX_BATCH);
        let mut queue = due.lock().await;
        if queue.recv_many(&mut operations, MAX_BATCH).await == 0 {
            return;
        }
        let under_way = UnderWay::begin(&under_way);
        // Callers that were woken together with the first one come in, too.
        yield_now().await;
        while operations.len() < MAX_BATCH
            && let Ok(operation) = queue.try_recv()
        {
            operations.push(operation);
        }
        let Some(connection) = connection.upgrade() else { return };
        let is_full = operations.len() == MAX_BATCH;
        // Polled once, and not held up by a budget, all its calls stand in the driver's queue: the next batch comes
        // behind them.
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

/// A batch that is under way.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn begin(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
