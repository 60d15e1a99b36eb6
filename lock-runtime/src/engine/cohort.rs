//! The queue of this process: at most one of its tasks asks the store for a lock, the others wait here.
//!
//! When a holder leaves, the lease goes to the next waiter of this process without a round trip, with the next
//! fencing token of the same grant. While others wait in the store this happens only within a bound. This is lock
//! cohorting (Dice, Marathe and Shavit, «Lock Cohorting», 2012) applied to leases.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, oneshot};

use crate::{
    LockError, LockErrorKind,
    backend::{Reporter, Reports, Wait},
    engine::{
        hold::{Hold, Terms, Turn},
        limits::Limits,
    },
    lock::request::Request,
    sync::lock,
    time::{
        clock::{self, Instant},
        deadline::min_validity,
    },
};

/// How often, and for how long, a lease is passed on while others wait in the store.
const MAX_TURNS: u32 = 64;
const MAX_TENURE: Duration = Duration::from_millis(5);
/// For so long it is passed on when nobody is known to wait: a store's word that others wait may be lost.
const MAX_TENURE_ALONE: Duration = Duration::from_secs(1);

/// For so long after the end of a wait an answer of the store is still waited for: it is worth more than an error.
const LATE_ANSWER: Duration = Duration::from_millis(500);

/// Until when an answer is waited for that was asked for now, where the wait ends at `end`. Several locks have one wait,
/// so one of them may be asked for when it is over.
pub(crate) fn last_answer(end: Instant) -> Instant {
    end.max(Instant::now()) + LATE_ANSWER
}

/// What the queues ask of those above them.
pub(crate) trait Above: fmt::Debug + Send + Sync {
    /// A turn was passed on to a waiter that is gone.
    fn take_back(&self, turn: &Arc<Turn>);
}

/// The queues of all locks of one store.
#[derive(Debug)]
pub(crate) struct Cohorts {
    by_name: Mutex<HashMap<Arc<str>, Cohort>>,
    waiting: AtomicUsize,
    attempt_ids: AtomicU64,
    /// Tells those whose time is over, and who wait for it, that a store has answered.
    first_word: Notify,
    limits: Limits,
}

/// One lock's queue. It exists while a task of this process asks for the lock or holds it.
#[derive(Debug)]
struct Cohort {
    state: State,
    waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
enum State {
    /// The leader asks the store, which has said this. The leader is known by the number of its attempt, so that what
    /// outlives an attempt that was given up has no say in the next one.
    Asking { leader: u64, word: Word },
    /// A task of this process holds the lease, or has been called to.
    Holding { turn: Arc<Turn>, turns: u32, since: Instant },
}

/// The last word of a store since a task of this process last held the lock.
#[derive(Debug)]
enum Word {
    None,
    /// Somebody else holds it.
    Held,
    Trouble(LockError),
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    terms: Terms,
    max_hold: Duration,
    call: oneshot::Sender<Call>,
}

/// What a waiter is called for.
#[derive(Debug)]
enum Call {
    /// The turn is its own.
    Enter(Arc<Turn>),
    /// It is its turn to ask the store, after a pause.
    Lead { pause: Duration },
}

/// What a task has to do that wants a lock.
#[derive(Debug)]
pub(crate) enum Entry {
    /// Ask the store; others may come to wait behind it.
    Lead(Leader),
    /// Wait behind another task of this process.
    Follow(Follower),
    /// A task of this process holds it, and waiting was not asked for.
    Busy(Holder),
    /// Ask the store beside the queue: one attempt without waiting, while another task asks or its hold is in doubt.
    Alone,
}

/// What is known of the holder of a lock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holder {
    /// What its lease has left.
    pub(crate) remaining: Option<Duration>,
    /// It is known not to be renewed: it is free then.
    pub(crate) is_final: bool,
}

impl Holder {
    fn of(hold: &Hold, now: Instant) -> Self {
        Self { remaining: Some(hold.remaining(now)), is_final: !hold.terms.auto_renew }
    }
}

/// What is left to do for a holder that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// The lease went to the next waiter or is kept for longer, or the turn was left before.
    Passed,
    /// The lease must be released in the store.
    Last,
}

impl Cohorts {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            by_name: Mutex::default(),
            waiting: AtomicUsize::new(0),
            attempt_ids: AtomicU64::new(0),
            first_word: Notify::new(),
            limits,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Cohort>> {
        lock(&self.by_name)
    }

    /// A number for an attempt, by which its part in a queue is known.
    pub(crate) fn next_id(&self) -> u64 {
        self.attempt_ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Joins the queue of its lock for the attempt `id`.
    pub(crate) fn enter(
        self: &Arc<Self>,
        request: &Request,
        id: u64,
        above: impl FnOnce() -> Arc<dyn Above>,
    ) -> Result<Entry, LockError> {
        let (this, key) = (self, &request.key);
        let mut cohorts = this.lock();
        let Some(cohort) = cohorts.get_mut(key.stored()) else {
            let name = key.stored_name();
            let state = State::Asking { leader: id, word: Word::None };
            cohorts.insert(Arc::clone(&name), Cohort { state, waiters: VecDeque::new() });
            return Ok(Entry::Lead(Leader::new(self, name, id)));
        };
        if request.wait == Wait::No {
            let now = Instant::now();
            return Ok(match &cohort.state {
                State::Holding { turn, .. } if turn.hold.is_valid(now) => {
                    Entry::Busy(Holder::of(&turn.hold, now))
                }
                _ => Entry::Alone,
            });
        }
        if cohort.waiters.len() >= this.limits.waiters_per_key {
            return Err(overloaded(&format!(
                "{} tasks of this process wait for it",
                this.limits.waiters_per_key
            )));
        }
        if this.waiting.fetch_add(1, Ordering::Relaxed) >= this.limits.waiters {
            this.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(overloaded(&format!("{} tasks of this process wait for locks", this.limits.waiters)));
        }
        let (call, called) = oneshot::channel();
        cohort.waiters.push_back(Waiter {
            id,
            terms: request.terms(),
            max_hold: request.options.max_hold,
            call,
        });
        Ok(Entry::Follow(Follower {
            cohorts: Arc::clone(self),
            above: above(),
            name: key.stored_name(),
            id,
            called,
            done: false,
        }))
    }

    /// The holder of `turn` left, which was `valid` until then: decides who holds or asks next.
    pub(crate) fn leave(&self, turn: &Arc<Turn>, valid: bool, now: Instant) -> Leaving {
        let mut cohorts = self.lock();
        let hold = &turn.hold;
        let name = hold.key().stored();
        let Some(cohort) = cohorts.get_mut(name) else { return Leaving::Last };
        let State::Holding { turn: present, turns, since } = &mut cohort.state else { return Leaving::Last };
        if !Arc::ptr_eq(present, turn) {
            return Leaving::Last;
        }
        let tenure = now.saturating_duration_since(*since);
        let spent = *turns >= MAX_TURNS || tenure >= MAX_TENURE;
        let may_pass = valid
            && hold.is_valid(now)
            && hold.remaining(now) >= min_validity(hold.terms.ttl)
            && tenure < MAX_TENURE_ALONE
            && hold.lease().is_some_and(|lease| !(spent && lease.is_contended()));
        // Only to a waiter that asked for the same lease; one without renewal needs it in its whole length.
        let takes = |next: &Waiter| may_pass && next.terms == hold.terms && next.terms.auto_renew;
        while let Some(next) = cohort.waiters.front().filter(|next| takes(next)) {
            let Some(next_turn) = turn.next(now, next.max_hold) else { break };
            let next = cohort.waiters.pop_front().expect("looked at above");
            // A waiter that gave up at this very moment leaves the turn to the one behind it.
            if next.call.send(Call::Enter(Arc::clone(&next_turn))).is_ok() {
                *present = next_turn;
                *turns += 1;
                return Leaving::Passed;
            }
        }
        // Behind this line nobody of this process uses the lease any more.
        let pause = match hold.lease() {
            Some(lease) if !cohort.waiters.is_empty() => lease.leave_free(),
            _ => Duration::ZERO,
        };
        Self::call_leader(&mut cohorts, name, pause);
        Leaving::Last
    }

    /// The lease of a cohort is lost: its waiters need not wait for the holder to notice.
    pub(crate) fn dissolve(&self, lost: &Arc<Hold>) {
        let mut cohorts = self.lock();
        let name = lost.key().stored();
        if let Some(Cohort { state: State::Holding { turn, .. }, .. }) = cohorts.get(name)
            && Arc::ptr_eq(&turn.hold, lost)
        {
            Self::call_leader(&mut cohorts, name, Duration::ZERO);
        }
    }

    /// Takes a waiter out of the queue; says why it did not get the lock until now.
    fn withdraw(&self, name: &str, id: u64) -> Why {
        let mut cohorts = self.lock();
        let Some(cohort) = cohorts.get_mut(name) else { return Why::Held(Holder::default()) };
        cohort.waiters.retain(|waiter| waiter.id != id);
        match &cohort.state {
            State::Holding { turn, .. } => Why::Held(Holder::of(&turn.hold, Instant::now())),
            State::Asking { leader, word } => word.why(*leader),
        }
    }

    /// The store said something to the attempt that asks it.
    fn say(&self, lock: &str, attempt: u64, word: Word) {
        if let Some(Cohort { state: State::Asking { leader, word: last }, .. }) = self.lock().get_mut(lock)
            && *leader == attempt
            && let Word::None = std::mem::replace(last, word)
        {
            self.first_word.notify_waiters();
        }
    }

    /// Whether nothing is known about who holds the lock.
    fn is_unanswered(&self, name: &str) -> bool {
        matches!(self.lock().get(name), Some(Cohort { state: State::Asking { word: Word::None, .. }, .. }))
    }

    /// Whether the attempt `id` asks for the lock and others wait behind it.
    pub(crate) fn leads_others(&self, name: &str, id: u64) -> bool {
        self.lock().get(name).is_some_and(|cohort| cohort.is_led_by(id) && !cohort.waiters.is_empty())
    }

    /// Lets the first waiter ask the store, or forgets the queue when nobody waits.
    fn call_leader(cohorts: &mut HashMap<Arc<str>, Cohort>, name: &str, pause: Duration) {
        let Some(cohort) = cohorts.get_mut(name) else { return };
        while let Some(waiter) = cohort.waiters.pop_front() {
            if waiter.call.send(Call::Lead { pause }).is_ok() {
                match &mut cohort.state {
                    // What a leader heard, its successor knows.
                    State::Asking { leader, .. } => *leader = waiter.id,
                    state @ State::Holding { .. } => {
                        *state = State::Asking { leader: waiter.id, word: Word::None };
                    }
                }
                return;
            }
        }
        cohorts.remove(name);
    }
}

impl Cohort {
    /// Whether the attempt `id` is the one that asks the store.
    fn is_led_by(&self, id: u64) -> bool {
        matches!(self.state, State::Asking { leader, .. } if leader == id)
    }
}

impl Word {
    fn why(&self, leader: u64) -> Why {
        match self {
            Self::None => Why::Unanswered { leader },
            Self::Held => Why::Held(Holder::default()),
            Self::Trouble(error) => Why::Trouble(error.clone()),
        }
    }
}

/// The one that asks the store about a lock for its cohort.
#[derive(Debug)]
pub(crate) struct Asker {
    cohorts: Arc<Cohorts>,
    name: Arc<str>,
    id: u64,
}

impl Reports for Cohorts {
    fn contended(&self, lock: &str, attempt: u64) {
        self.say(lock, attempt, Word::Held);
    }

    fn failed(&self, lock: &str, attempt: u64, error: &LockError) {
        self.say(lock, attempt, Word::Trouble(error.clone()));
    }
}

impl Asker {
    /// Where the store reports to.
    pub(crate) fn reporter(&self) -> Reporter {
        let Self { cohorts, name, id } = self;
        let to: Arc<dyn Reports> = Arc::<Cohorts>::clone(cohorts);
        Reporter { to, lock: Arc::clone(name), attempt: *id }
    }

    /// The store said that another client holds the lock.
    pub(crate) fn contended(&self) {
        self.cohorts.contended(&self.name, self.id);
    }

    /// The store failed, and will be asked again.
    pub(crate) fn failed(&self, error: &LockError) {
        self.cohorts.failed(&self.name, self.id, error);
    }

    /// Why the store has not granted the lock until now.
    pub(crate) fn why(&self) -> Why {
        match self.cohorts.lock().get(&self.name) {
            Some(Cohort { state: State::Asking { word, .. }, .. }) => word.why(self.id),
            _ => Why::Held(Holder::default()),
        }
    }
}

/// The task that asks the store for its cohort; dropped, it lets the next one ask.
#[derive(Debug)]
pub(crate) struct Leader {
    asker: Asker,
    leads: bool,
}

impl Leader {
    fn new(cohorts: &Arc<Cohorts>, name: Arc<str>, id: u64) -> Self {
        Self { asker: Asker { cohorts: Arc::clone(cohorts), name, id }, leads: true }
    }

    pub(crate) fn asker(&self) -> &Asker {
        &self.asker
    }

    /// The store granted the lock.
    pub(crate) fn granted(mut self, turn: &Arc<Turn>, now: Instant) {
        self.leads = false;
        let cohorts = &self.asker.cohorts;
        if let Some(cohort) = cohorts.lock().get_mut(&self.asker.name)
            && cohort.is_led_by(self.asker.id)
        {
            cohort.state = State::Holding { turn: Arc::clone(turn), turns: 0, since: now };
            if !cohort.waiters.is_empty() {
                cohorts.first_word.notify_waiters();
            }
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if self.leads {
            let Asker { cohorts, name, id } = &self.asker;
            let mut cohorts = cohorts.lock();
            if cohorts.get(name).is_some_and(|cohort| cohort.is_led_by(*id)) {
                Cohorts::call_leader(&mut cohorts, name, Duration::ZERO);
            }
        }
    }
}

/// A task that waits in the queue of this process; dropped, it leaves the queue.
#[derive(Debug)]
pub(crate) struct Follower {
    cohorts: Arc<Cohorts>,
    above: Arc<dyn Above>,
    name: Arc<str>,
    id: u64,
    called: oneshot::Receiver<Call>,
    /// Out of the queue: nothing is left to undo.
    done: bool,
}

/// How waiting in the queue ended.
#[derive(Debug)]
pub(crate) enum Waited {
    /// The turn was passed on to it.
    Called(Arc<Turn>),
    /// Ask the store, after a pause.
    Lead { leader: Leader, pause: Duration },
    /// The wait ran out.
    TimedOut(Why),
}

/// Why a wait ran out.
#[derive(Debug)]
pub(crate) enum Why {
    /// Another holds it.
    Held(Holder),
    /// The store failed when it was asked last.
    Trouble(LockError),
    /// The store has not answered yet whether it is held, as far as the attempt that asks it knows.
    Unanswered { leader: u64 },
}

impl Follower {
    /// Waits until called, at most until `end`; for a store that has not answered until then, a little longer.
    ///
    /// # Cancel safety
    /// Dropping it leaves the queue; a call that came at the same moment goes to the next waiter.
    pub(crate) async fn wait(mut self, end: Instant) -> Waited {
        let mut call = tokio::select! {
            biased;
            call = &mut self.called => call.ok(),
            () = clock::sleep_until(end) => None,
        };
        if call.is_none() {
            call = self.wait_for_a_word(last_answer(end)).await;
        }
        match call {
            Some(call) => self.answer(call),
            None => self.time_out(),
        }
    }

    /// Waits until the store has said something, or until called before that.
    async fn wait_for_a_word(&mut self, end: Instant) -> Option<Call> {
        loop {
            let word = self.cohorts.first_word.notified();
            tokio::pin!(word);
            word.as_mut().enable();
            if !self.cohorts.is_unanswered(&self.name) {
                return None;
            }
            tokio::select! {
                biased;
                call = &mut self.called => return call.ok(),
                () = word => {}
                () = clock::sleep_until(end) => return None,
            }
        }
    }

    fn answer(&mut self, call: Call) -> Waited {
        self.done = true;
        match call {
            Call::Enter(turn) => Waited::Called(turn),
            Call::Lead { pause } => Waited::Lead { leader: self.lead(), pause },
        }
    }

    fn lead(&self) -> Leader {
        Leader::new(&self.cohorts, Arc::clone(&self.name), self.id)
    }

    fn time_out(&mut self) -> Waited {
        let why = self.cohorts.withdraw(&self.name, self.id);
        self.done = true;
        // Out of the queue nobody calls any more, but somebody may have called just before.
        match self.called.try_recv() {
            Ok(call) => self.answer(call),
            Err(_) => Waited::TimedOut(why),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.cohorts.waiting.fetch_sub(1, Ordering::Relaxed);
        if self.done {
            return;
        }
        self.cohorts.withdraw(&self.name, self.id);
        self.called.close();
        match self.called.try_recv() {
            Ok(Call::Enter(turn)) => self.above.take_back(&turn),
            Ok(Call::Lead { .. }) => drop(self.lead()),
            Err(_) => {}
        }
    }
}

fn overloaded(what: &str) -> LockError {
    LockError::new(LockErrorKind::Overloaded, format!("{what} already, the limit; try again later"))
}

#[cfg(test)]
mod tests;
