//! The state that all sessions of one store share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use super::config::Config;
use crate::{
    backend::{
        common::host,
        kits::postgres::{
            fitness::Fitness, notices::Notices, statement::Statement, sweep::Sweeper, table::Table,
        },
    },
    sync::lock,
    time::clock::Instant,
};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) statements: Statements,
    pub(super) fitness: Fitness,
    pub(super) sweeper: Sweeper,
    pub(super) notices: Arc<Notices>,
    pub(super) left_free: LeftFree,
    /// Host and process id, for a human reader of the table.
    pub(super) label: String,
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
            label: format!("{} pid {}", host::name(), std::process::id()),
            config,
        })
    }
}

/// The statements of a session.
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
}

impl Statements {
    fn of(table: &Table) -> Self {
        let of = |text| Statement::of(text, table);
        Self {
            begin: of(include_str!("sql/begin.sql")),
            ping: of(include_str!("sql/ping.sql")),
            lock: of(include_str!("sql/lock.sql")),
            create: of(include_str!("sql/create.sql")),
            want: of(include_str!("sql/want.sql")),
            wanted: of(include_str!("sql/wanted.sql")),
            unlock: of(include_str!("sql/unlock.sql")),
            free: of(include_str!("sql/free.sql")),
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
