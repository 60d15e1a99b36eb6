//! Admits cases: some at a time, and of those that would disturb the others fewer.

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
};

/// What a case takes while it runs.
#[derive(Clone, Copy, Debug)]
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
    own_servers: BTreeMap<&'static str, usize>,
    has_a_busy_one: bool,
    /// In the order of their arrival.
    waiting: Vec<(Demand, Sender<Admitted>)>,
}

impl Admission {
    pub fn new(at_once: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            room: at_once,
            own_servers: BTreeMap::new(),
            has_a_busy_one: false,
            waiting: Vec::new(),
        })))
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
        self.room += 1;
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
