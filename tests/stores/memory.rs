//! `memory:`, the store inside this process.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use lock_runtime::{
    LockErrorKind,
    backend::{Capabilities, Memory},
};

use lock_conformance::{Fault, Server, Site};

pub const STORES: &[&dyn lock_conformance::Store] = &[&Store { name: "memory" }];

inventory::submit!(super::File { is_compiled_in: true, is_large: false, stores: STORES });

struct Store {
    name: &'static str,
}

impl lock_conformance::Store for Store {
    fn name(&self) -> &'static str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().fair().telling_of_waiters().showing_locks().revoking()
    }

    fn offers(&self, fault: Fault) -> bool {
        matches!(fault, Fault::Down | Fault::Paused | Fault::Slow(_))
    }

    /// Each case has its own store in any case.
    fn site(&self, _server: Server) -> Box<dyn Site> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("case{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        Box::new(MemorySite { store: Memory::named(&name), name })
    }

    fn bad_urls(&self) -> Vec<(String, LockErrorKind)> {
        ["memory:a?b=c", "memory://host", "memory:/a", "memory:a#b", "memory:user@host"]
            .map(|url| (url.to_owned(), LockErrorKind::InvalidOptions))
            .into()
    }
}

struct MemorySite {
    name: String,
    store: Memory,
}

impl Site for MemorySite {
    fn url(&self) -> String {
        format!("memory:{}", self.name)
    }

    fn left(&self, _mark: &str) -> Vec<String> {
        (0..self.store.len()).map(|number| format!("lock {number}")).collect()
    }

    fn places(&self, key: &str) -> usize {
        self.store.waiting(key)
    }

    fn lose(&self, key: &str) -> bool {
        self.store.lose(key)
    }

    fn hurt(&self, fault: Fault) {
        match fault {
            Fault::Down => self.store.set_failing(true),
            Fault::Paused => self.store.set_delay(Duration::from_hours(1)),
            Fault::Slow(delay) => self.store.set_delay(delay),
            fault => unreachable!("{fault:?} is not offered"),
        }
    }

    fn heal(&self) {
        self.store.set_failing(false);
        self.store.set_delay(Duration::ZERO);
    }
}
