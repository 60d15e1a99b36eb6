//! Idle wake-ups: wake-ups that need not be answered by a poll, because the woken waiter blocks no other waiter.
//!
//! An idle wake-up is marked on the waking thread, so that the code that watches a task (see
//! [`unpolled`](crate::engine::unpolled)) can distinguish it from other wake-ups.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Context, Wake, Waker},
};

thread_local! {
    /// Whether the wake-up that this thread performs at present is idle.
    static IDLE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the wake-up that this thread performs at present is idle.
pub(crate) fn is_idle_wake_up() -> bool {
    IDLE.get()
}

/// The mark of this thread. Dropping this value restores the previous mark.
pub(crate) struct Idle(bool);

impl Idle {
    pub(crate) fn set(idle: bool) -> Self {
        Self(IDLE.replace(idle))
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        IDLE.set(self.0);
    }
}

struct IdleWaker(Waker);

impl Wake for IdleWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let _idle = Idle::set(true);
        self.0.wake_by_ref();
    }
}

/// Completes with the output of `future`, whose wake-ups are marked as idle.
///
/// # Cancel safety
/// The same as `future`.
pub(crate) async fn idle<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut idle: Option<Arc<IdleWaker>> = None;
    poll_fn(|cx| {
        let waker = match &idle {
            Some(idle) if idle.0.will_wake(cx.waker()) => Arc::clone(idle),
            _ => Arc::clone(idle.insert(Arc::new(IdleWaker(cx.waker().clone())))),
        };
        future.as_mut().poll(&mut Context::from_waker(&Waker::from(waker)))
    })
    .await
}
