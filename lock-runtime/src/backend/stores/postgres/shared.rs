//! The state that all locks of one store share.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use super::{flight::Abandoned, released::Waiting};
use crate::backend::{
    common::host,
    kits::postgres::{
        config::Config,
        connections::Connections,
        notices::Notices,
        statement::Statement,
        sweep::{self, Sweeper},
        table::Table,
    },
};

pub(super) struct Shared {
    pub(super) connections: Arc<Connections>,
    pub(super) statements: Statements,
    pub(super) notices: Arc<Notices>,
    pub(super) abandoned: Abandoned,
    pub(super) releases: Mutex<Waiting>,
    pub(super) sweeper: Sweeper,
    /// Host and process id, for a human reader of the table.
    pub(super) label: String,
}

/// The statements about the locks of one table.
pub(super) struct Statements {
    pub(super) take: Statement,
    pub(super) acquire: Statement,
    pub(super) release: Statement,
    pub(super) hand_over: Statement,
    pub(super) release_many: Statement,
    pub(super) renew: Statement,
    pub(super) sweep: Statement,
    pub(super) remove: Statement,
    pub(super) check_in: Statement,
}

impl Statements {
    fn of(table: &Table) -> Self {
        let of =
            |text: &str| Statement::of(&text.replace("{grant}", include_str!("sql/grant.sql")), table);
        Self {
            take: of(include_str!("sql/take.sql")),
            acquire: of(include_str!("sql/acquire.sql")),
            release: of(include_str!("sql/release.sql")).or_unnotified(),
            hand_over: of(include_str!("sql/hand_over.sql")).or_unnotified(),
            release_many: of(include_str!("sql/release_many.sql")).or_unnotified(),
            renew: of(include_str!("sql/renew.sql")),
            check_in: of(include_str!("sql/check_in.sql")),
            sweep: of(sweep::SQL),
            remove: of(sweep::REMOVE_SQL),
        }
    }
}

impl Shared {
    pub(super) fn new(config: Config) -> Arc<Self> {
        let statements = Statements::of(&config.table);
        let connections = Arc::new(Connections::new(config.clone()));
        let notices = Notices::new(config, Arc::clone(connections.keeps_sessions()));
        let label = format!("{} pid {}", host::name(), std::process::id());
        Arc::new(Self {
            connections,
            statements,
            notices,
            abandoned: Abandoned::default(),
            releases: Mutex::default(),
            sweeper: Sweeper::default(),
            label,
        })
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connections.fmt(f)
    }
}
