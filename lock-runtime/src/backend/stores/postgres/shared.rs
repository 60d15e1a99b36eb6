//! The state that all locks of one store share.

use std::{fmt, sync::Arc};

use super::{flight::Abandoned, release::Releases, revocations::Revocations};
use crate::backend::kits::postgres::{
    config::Config, connections::Connections, notices::Notices, statement::Statement, sweep::Sweeper,
    table::Table,
};

/// The name of this kind of store, for metrics and traces.
pub(super) const NAME: &str = "postgres";

pub(super) struct Shared {
    pub(super) connections: Arc<Connections>,
    pub(super) statements: Statements,
    pub(super) notices: Arc<Notices>,
    pub(super) abandoned: Abandoned,
    pub(super) releases: Arc<Releases>,
    pub(super) sweeper: Sweeper,
    pub(super) revocations: Arc<Revocations>,
}

/// The statements about the locks of one table, without those that release locks or remove rows.
pub(super) struct Statements {
    pub(super) take: Statement,
    pub(super) acquire: Statement,
    pub(super) renew: Statement,
    pub(super) check_in: Statement,
    pub(super) wanted: Statement,
    pub(super) inspect: Statement,
    pub(super) scan: Statement,
    pub(super) revoke: Statement,
    pub(super) force: Statement,
}

impl Statements {
    fn of(table: &Table) -> Self {
        let of = |text: &str| {
            let text = text
                .replace("{grant}", include_str!("sql/grant.sql"))
                .replace("{state}", include_str!("sql/state.sql"));
            Statement::of(&text, table)
        };
        Self {
            take: of(include_str!("sql/take.sql")),
            acquire: of(include_str!("sql/acquire.sql")),
            renew: of(include_str!("sql/renew.sql")),
            check_in: of(include_str!("sql/check_in.sql")),
            wanted: of(include_str!("sql/wanted.sql")),
            inspect: of(include_str!("sql/inspect.sql")),
            scan: of(include_str!("sql/scan.sql")),
            revoke: of(include_str!("sql/revoke.sql")).or_unnotified(),
            force: of(include_str!("sql/force.sql")).or_unnotified(),
        }
    }
}

impl Shared {
    pub(super) fn new(config: Config) -> Arc<Self> {
        let (statements, sweeper) = (Statements::of(&config.table), Sweeper::of(&config.table));
        let connections = Arc::new(Connections::new(config.clone(), NAME));
        let notices = Notices::new(config, Arc::clone(&connections.keeps_sessions));
        let releases = Releases::new(&connections, &notices);
        let revocations = Revocations::new(&connections, &notices);
        Arc::new(Self {
            connections,
            statements,
            notices,
            abandoned: Abandoned::default(),
            releases,
            sweeper,
            revocations,
        })
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("config", &self.connections.config).finish_non_exhaustive()
    }
}
