//! A case: its claim, and the abilities that a store needs for it to make sense.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use libtest_mimic::Failed;
use lock_runtime::backend::Capabilities;

use crate::{
    admission::Demand,
    fixture::Fixture,
    store::{Fault, Server, Store},
};

type Body = Arc<dyn Fn(Fixture) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync>;

/// Built by [`case!`], from the function whose name is the claim.
pub struct Case {
    group: &'static str,
    /// The fault that the case is repeated for; part of its name.
    under: Option<Fault>,
    claim: &'static str,
    body: Body,
    needs: Vec<Need>,
    limit: Duration,
    is_busy: bool,
}

/// An ability that a store needs for a case to make sense.
#[derive(Clone, Copy)]
pub enum Need {
    Can(fn(Capabilities) -> bool),
    Fault(Fault),
    /// Clients of other libraries can hold its locks.
    ForeignClients,
    Passwords,
    /// Calls about many locks go together, and a name can be spoilt.
    SharedCalls,
    /// Clients make connections to it, and log its outages.
    Connections,
    /// The store can report the number of calls it answered.
    CountedCalls,
    /// A hold lasts through a new connection of its client.
    HoldsOutliveConnections,
    /// A hold ends when the server learns that its connection broke.
    HoldsEndWithTheirConnection,
}

impl Case {
    /// `module` is that of the function; its last part names the group.
    pub fn new<F: Future<Output = ()> + 'static>(
        module: &'static str,
        claim: &'static str,
        body: impl Fn(Fixture) -> F + Send + Sync + 'static,
    ) -> Self {
        Self {
            group: module.rsplit("::").next().unwrap_or(module),
            under: None,
            claim,
            body: Arc::new(move |fixture| Box::pin(body(fixture))),
            needs: Vec::new(),
            limit: Duration::from_mins(1),
            is_busy: false,
        }
    }

    /// Marks the case as one that keeps the processors busy. One such case runs at a time: the others beside it measure
    /// how long something takes.
    pub fn busy(mut self) -> Self {
        self.is_busy = true;
        self
    }

    pub fn needs(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    /// Sets the time limit of the whole case; a minute by default.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    pub fn hurts(self, fault: Fault) -> Self {
        self.needs(Need::Fault(fault))
    }

    /// Marks the case as one of several that are repeated for this fault.
    pub fn under(mut self, fault: Fault) -> Self {
        self.under = Some(fault);
        self.hurts(fault)
    }

    pub fn group(&self) -> &'static str {
        self.group
    }

    pub fn name(&self) -> String {
        match self.under {
            Some(fault) => format!("{}::{}::{}", self.group, fault.name(), self.claim),
            None => format!("{}::{}", self.group, self.claim),
        }
    }

    pub fn fits(&self, store: &dyn Store) -> bool {
        self.needs.iter().all(|need| match need {
            Need::Can(can) => can(store.capabilities()),
            Need::Fault(fault) => store.offers(*fault),
            Need::ForeignClients => store.has_foreign_clients(),
            Need::Passwords => store.has_passwords(),
            Need::SharedCalls => store.shares_calls(),
            Need::Connections => store.has_connections(),
            Need::CountedCalls => store.calls_of_a_refused_attempt().is_some(),
            Need::HoldsOutliveConnections => !store.holds_end_with_their_connection(),
            Need::HoldsEndWithTheirConnection => store.holds_end_with_their_connection(),
        })
    }

    /// A case that hurts its server, or is disturbed by other cases, has its own.
    fn server(&self) -> Server {
        let mut server = Server::Shared;
        for need in &self.needs {
            match need {
                Need::Fault(Fault::ClockForward(_) | Fault::ClockBack(_)) => return Server::OwnWithClock,
                Need::Fault(_) | Need::Passwords | Need::CountedCalls => server = Server::Own,
                Need::Can(_)
                | Need::ForeignClients
                | Need::Connections
                | Need::SharedCalls
                | Need::HoldsOutliveConnections
                | Need::HoldsEndWithTheirConnection => {}
            }
        }
        server
    }

    /// What it takes on this store while it runs.
    pub fn demand(&self, store: &dyn Store) -> Demand {
        let has_its_own = self.server() != Server::Shared;
        Demand {
            own_server: has_its_own.then(|| (store.name(), store.own_servers_at_once())),
            // Most of such a case is waiting where sessions have to be resumed or to end.
            is_busy: self.is_busy && store.capabilities().session_timeout().is_none(),
        }
    }

    /// Runs the case on its own thread and runtime, at most for its limit.
    pub fn run(&self, name: &str, store: &'static dyn Store) -> Result<(), Failed> {
        let fixture = Fixture::new(store, self.server());
        let body = Arc::clone(&self.body);
        let limit = self.limit;
        let thread_name = name.to_owned();
        let (tell, told) = mpsc::channel();
        thread::Builder::new().name(thread_name.clone()).spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .thread_name(thread_name)
                    .enable_all()
                    .build()
                    .unwrap();
                let in_time = runtime.block_on(async { tokio::time::timeout(limit, body(fixture)).await });
                runtime.shutdown_background();
                assert!(in_time.is_ok(), "not ended after {limit:?}");
            }));
            let _ = tell.send(ended.map_err(|panic| text(&*panic)));
        })?;
        match told.recv_timeout(limit + Duration::from_secs(10)) {
            Ok(ended) => ended.map_err(Failed::from),
            // A blocked thread cannot be ended; it goes with the process.
            Err(_) => Err(format!("not ended after {limit:?}, and its thread is blocked").into()),
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without a text".into())
}

/// A case made of a function of this module: `async fn(Fixture)`, or `async fn(Fixture, …)` with the rest given.
macro_rules! case {
    ($claim:ident) => {
        $crate::case::Case::new(module_path!(), stringify!($claim), $claim)
    };
    ($claim:ident, $($given:expr),+) => {
        $crate::case::Case::new(module_path!(), stringify!($claim), move |fixture| $claim(fixture, $($given),+))
    };
}
pub(crate) use case;
