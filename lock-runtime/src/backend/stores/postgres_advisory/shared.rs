//! The state that all sessions of one store share.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex},
};

use super::{config::Config, names::KIND_OF_MARKS};
use crate::{
    backend::kits::postgres::{
        connections::Connections, fitness::Fitness, notices::Notices, revocations, statement::Statement,
        sweep::Sweeper, table::Table,
    },
    sync::lock,
    time::clock::Instant,
};

pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) statements: Statements,
    pub(super) fitness: Fitness,
    pub(super) sweeper: Sweeper,
    pub(super) notices: Arc<Notices>,
    pub(super) left_free: LeftFree,
    pub(super) revocations: revocations::Statements,
    /// The connections for operators and for the marks of periods: a session that has locks is asked nothing that may take
    /// long.
    pub(super) operators: Connections,
}

impl Shared {
    pub(super) fn new(config: Config) -> Arc<Self> {
        let table = &config.of_server.table;
        Arc::new(Self {
            statements: Statements::of(table),
            fitness: Fitness::of(table, false),
            sweeper: Sweeper::of(table),
            notices: Notices::new(config.of_server.clone(), Arc::default()),
            left_free: LeftFree::default(),
            revocations: revocations::Statements::of(table),
            operators: Connections::of_operators(config.of_server.clone()),
            config,
        })
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The statements of a session, and those for operators.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) begin: Statement,
    pub(super) ping: Statement,
    pub(super) lock: Statement,
    pub(super) create: Statement,
    pub(super) want: Statement,
    pub(super) wanted: Statement,
    pub(super) unlock: Statement,
    pub(super) free: Statement,
    pub(super) inspect: Statement,
    pub(super) scan: Statement,
    pub(super) revoke: Statement,
    pub(super) force: Statement,
    pub(super) mark: Statement,
    pub(super) unmark: Statement,
}

impl Statements {
    fn of(table: &Table) -> Self {
        let of = |text: &str| {
            let text = text
                .replace("{holders}", include_str!("sql/holders.sql"))
                .replace("{state}", include_str!("sql/state.sql"))
                .replace("{kind}", &KIND_OF_MARKS.to_string());
            Statement::of(&text, table)
        };
        Self {
            begin: of(include_str!("sql/begin.sql")),
            ping: of(include_str!("sql/ping.sql")),
            lock: of(include_str!("sql/lock.sql")),
            create: of(include_str!("sql/create.sql")),
            want: of(include_str!("sql/want.sql")),
            wanted: of(include_str!("sql/wanted.sql")),
            unlock: of(include_str!("sql/unlock.sql")),
            free: of(include_str!("sql/free.sql")),
            inspect: of(include_str!("sql/inspect.sql")),
            scan: of(include_str!("sql/scan.sql")),
            revoke: of(include_str!("sql/revoke.sql")).or_unnotified(),
            force: of(include_str!("sql/force.sql")).or_unnotified(),
            mark: of(include_str!("sql/mark.sql")),
            unmark: of(include_str!("sql/unmark.sql")),
        }
    }
}

/// Locks that this process has given back, and leaves to others for a moment.
#[derive(Debug, Default)]
pub(super) struct LeftFree(Mutex<HashMap<i64, Instant>>);

impl LeftFree {
    /// If the map has at least this number of locks, locks whose time has passed are removed from the map.
    const PRUNE_FROM: usize = 64;

    pub(super) fn leave(&self, number: i64, until: Instant) {
        let mut left = lock(&self.0);
        if left.len() >= Self::PRUNE_FROM {
            left.retain(|_, until| !until.has_passed());
        }
        left.insert(number, until);
    }

    /// Returns until when this process does not ask for a lock.
    pub(super) fn until(&self, number: i64) -> Option<Instant> {
        lock(&self.0).get(&number).copied().filter(|until| !until.has_passed())
    }
}
