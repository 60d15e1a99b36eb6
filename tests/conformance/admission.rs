//! Admits cases: some at a time, of those that would disturb the others fewer, and more while the processors are idle.

use std::{
    collections::BTreeMap,
    env, mem,
    num::NonZero,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};

use libtest_mimic::Arguments;

use crate::support::stopwatch::Moment;

/// How many cases run at a time for each core of the machine, unless `--test-threads` says how many.
const FOR_EACH_CORE: usize = 6;
/// How many more of them run while the processors are idle.
const MORE_FOR_EACH_CORE: usize = 6;
/// The same in the brief run, which has to be short: in the others, a case that fails for want of a processor costs more.
const MORE_IN_BRIEF: usize = 18;

/// Time after which one more case may run, if the processors were idle for long enough of it.
const STEP: Duration = Duration::from_millis(50);
/// How late a thread that is due every few milliseconds may be within [`STEP`] if the processors are idle for long enough.
const LATE: Duration = Duration::from_millis(3);

/// What a case takes while it runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    /// The store that has a server for this case alone, and the number of such servers that it may have at a time.
    pub own_server: Option<(&'static str, usize)>,
    /// Whether the case keeps the processors busy: of such cases, one runs at a time.
    pub is_busy: bool,
}

impl Demand {
    /// Whether the case may have to wait while others of the same kind run, however few cases run in all.
    pub fn is_scarce(self) -> bool {
        self.is_busy || self.own_server.is_some_and(|(_, at_once)| at_once < usize::MAX)
    }
}

/// The cases that run, and those that wait until they may.
#[derive(Clone, Debug)]
pub struct Admission(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Number of further cases that may run.
    room: usize,
    /// Number of cases beyond those that run at any time.
    lent: usize,
    most_lent: usize,
    own_servers: BTreeMap<&'static str, usize>,
    has_a_busy_one: bool,
    /// In the order of their arrival.
    waiting: Vec<(Demand, Sender<Admitted>)>,
}

impl Admission {
    /// Admits `at_once` cases, and up to `more` as far as [`lend`](Self::lend) is called.
    pub fn new(at_once: usize, more: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            room: at_once,
            lent: 0,
            most_lent: more,
            own_servers: BTreeMap::new(),
            has_a_busy_one: false,
            waiting: Vec::new(),
        })))
    }

    /// Admits as many cases as this machine runs without disturbing them, unless the arguments say how many. Then these have
    /// enough threads.
    pub fn for_this_machine(arguments: &mut Arguments) -> Self {
        if let Some(chosen) = arguments.test_threads {
            return Self::new(chosen, 0);
        }
        let cores = thread::available_parallelism().map_or(2, NonZero::get);
        let is_brief = env::var_os("LOCK_TEST_BRIEF").is_some();
        let more = cores * if is_brief { MORE_IN_BRIEF } else { MORE_FOR_EACH_CORE };
        let at_once = cores * FOR_EACH_CORE;
        arguments.test_threads = Some(at_once + more);
        let this = Self::new(at_once, more);
        this.lend_idle_processors();
        this
    }

    /// Waits until a case with this demand may run.
    pub fn admit(&self, demand: Demand) -> Admitted {
        self.request(demand).recv().expect("a request is kept until it is granted")
    }

    /// Has an answer as soon as a case with this demand may run: when there is everything that it takes and no earlier
    /// request can be granted. So a case that takes something scarce does not wait for room as well: what becomes free
    /// goes to it before it goes to those that came later.
    pub fn request(&self, demand: Demand) -> Receiver<Admitted> {
        let (answer, answered) = mpsc::channel();
        self.change(|state| state.waiting.push((demand, answer)));
        answered
    }

    /// Lets one more case run, until one ends.
    pub fn lend(&self) {
        self.change(|state| {
            if state.lent < state.most_lent {
                state.lent += 1;
                state.room += 1;
            }
        });
    }

    /// Lends while the processors are idle for some of the time. Most of a case is waiting for time to pass, but cases that
    /// run on a busy machine measure how busy it is.
    fn lend_idle_processors(&self) {
        let admission = self.clone();
        let lend = move || loop {
            let began = Moment::now();
            thread::sleep(STEP);
            if began.took().late < LATE {
                admission.lend();
            }
        };
        thread::Builder::new().name("admission".into()).spawn(lend).expect("a thread can be started");
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let mut granted = Vec::new();
        for (demand, answer) in mem::take(&mut state.waiting) {
            if state.has(demand) {
                state.take(demand);
                granted.push((answer, Admitted { by: self.clone(), demand }));
            } else {
                state.waiting.push((demand, answer));
            }
        }
        drop(state);
        for (answer, admitted) in granted {
            // If the case no longer waits, the admission is dropped, and so given back.
            let _ = answer.send(admitted);
        }
    }
}

impl State {
    fn has(&self, demand: Demand) -> bool {
        let taken = |store| self.own_servers.get(store).copied().unwrap_or_default();
        self.room > 0
            && !(demand.is_busy && self.has_a_busy_one)
            && demand.own_server.is_none_or(|(store, at_once)| taken(store) < at_once)
    }

    fn take(&mut self, demand: Demand) {
        self.room -= 1;
        self.has_a_busy_one |= demand.is_busy;
        if let Some((store, _)) = demand.own_server {
            *self.own_servers.entry(store).or_default() += 1;
        }
    }

    fn give_back(&mut self, demand: Demand) {
        if self.lent > 0 {
            self.lent -= 1;
        } else {
            self.room += 1;
        }
        self.has_a_busy_one &= !demand.is_busy;
        if let Some((store, _)) = demand.own_server {
            self.own_servers.entry(store).and_modify(|count| *count -= 1);
        }
    }
}

/// Leave for a case to run, until this is dropped.
#[derive(Debug)]
pub struct Admitted {
    by: Admission,
    demand: Demand,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.by.change(|state| state.give_back(self.demand));
    }
}
