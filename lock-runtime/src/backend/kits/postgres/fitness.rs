//! Whether a server and its table can hold locks.

use std::sync::Mutex;

use sqlx::{AssertSqlSafe, Executor, PgConnection, Row, postgres::PgRow};

use super::{
    config::Config,
    error::{self, Meaning},
    statement::{Form, Statement, set_lock_timeout},
    table::Table,
};
use crate::{
    LockError,
    backend::{FindingCode, common::server_clock::ServerClock},
    sync::lock,
    time::clock::Instant,
};

/// The statements that ask whether a server and its table can hold locks, and what the last answers have shown.
#[derive(Debug)]
pub(crate) struct Fitness {
    pub(super) of_server: Statement,
    pub(super) of_table: Statement,
    /// Whether locks have to outlive a crash of the server.
    pub(super) outlives: bool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    identity: Option<String>,
    /// The identity of the table that the user's pool leads to.
    of_pool: Option<String>,
    /// The identity of the table that the connections for renewals lead to, if the user's pool is used for other
    /// statements.
    of_renewals: Option<String>,
    /// The danger of which the log has last warned.
    danger: Option<String>,
    /// The start of the server that was last found fit.
    fit: Option<i64>,
}

impl Fitness {
    /// `outlives` is whether locks have to outlive a crash of the server.
    pub(crate) fn of(table: &Table, outlives: bool) -> Self {
        Self {
            outlives,
            of_server: Statement::of(include_str!("sql/server.sql"), table),
            of_table: Statement::of(include_str!("sql/fitness.sql"), table),
            seen: Mutex::default(),
        }
    }

    /// Returns the identity of the table that was seen last: the time at which the server of the table was started, and
    /// the OIDs of the database and of the table.
    pub(crate) fn identity(&self) -> Option<String> {
        lock(&self.seen).identity.clone()
    }

    /// Returns whether the user's pool and the connections for renewals lead to one table, as far as is known.
    pub(crate) fn is_of_one_table(&self) -> bool {
        let Seen { of_pool, of_renewals, .. } = &*lock(&self.seen);
        of_pool.is_none() || of_renewals.is_none() || of_pool == of_renewals
    }

    /// Checks that the server and the table can hold locks; creates a missing table if `create_table` is set.
    ///
    /// Over a connection for renewals no lock is acquired, so `strict` does not apply there: held locks are kept.
    pub(crate) async fn check(
        &self,
        connection: &mut PgConnection,
        config: &Config,
        clock: &ServerClock,
        for_renewals: bool,
    ) -> Result<(), LockError> {
        let failed = |error| error::explain(error, config);
        let form = Form::Text { lock_timeout: config.lock_timeout() };
        let server = self.server(connection, form, clock).await.map_err(failed)?;
        if server.is_read_only {
            return Err(error::read_only(&config.address()));
        }
        // A hook of the user's pool may give each session another table.
        if config.pool.is_none() && lock(&self.seen).fit == Some(server.started) {
            return Ok(());
        }
        let mut fitness = self.table(connection, form).await.map_err(failed)?;
        let is_created = fitness.identity.is_none() && config.create_table;
        if is_created {
            create_table(connection, config).await?;
            fitness = self.table(connection, form).await.map_err(failed)?;
        }
        let OfTable { may_change, hides_rows, lacks, danger, identity, name, others } = fitness;
        let Some(identity) = identity else {
            return Err(error::missing(&config.table));
        };
        if let Some(lacks) = lacks {
            return Err(error::other_columns(&config.table, &format!("it has no {lacks}")));
        }
        if !may_change {
            return Err(error::may_not(config, "permission denied"));
        }
        if hides_rows {
            return Err(error::row_security(&config.table));
        }
        let danger = danger.filter(|_| self.outlives).map(|danger| may_lose(config, &danger));
        let identity = Some(format!("{}/{identity}", server.started));
        let mut seen = lock(&self.seen);
        if seen.identity != identity {
            let (name, address) = (name.unwrap_or_default(), config.address());
            tracing::info!("the locks of PostgreSQL at {address} are in the table {name}");
            if let Some(others) = others
                && (is_created || config.create_table && !config.table.has_schema())
            {
                tracing::warn!(
                    "the database of PostgreSQL at {address} has several tables of locks: {name} is used here, and there \
                     is {others}; services that share locks need the same one, so let them name it with its schema, as in \
                     `table={name}`"
                );
            }
            seen.identity.clone_from(&identity);
        }
        if config.pool.is_some() {
            *(if for_renewals { &mut seen.of_renewals } else { &mut seen.of_pool }) = identity;
            if !for_renewals && seen.of_renewals.is_some() && seen.of_renewals != seen.of_pool {
                return Err(error::other_table(config));
            }
        }
        if seen.danger != danger {
            if let Some(danger) = &danger {
                tracing::warn!("{danger}");
            }
            seen.danger.clone_from(&danger);
        }
        if let Some(danger) = &danger
            && config.strict
        {
            if for_renewals {
                return Ok(());
            }
            let refused = error::backend(format!("{danger} (refused because of `strict`)"));
            return Err(refused.with_fault(FindingCode::Fsync));
        }
        seen.fit = Some(server.started);
        Ok(())
    }

    async fn server(
        &self,
        connection: &mut PgConnection,
        form: Form,
        clock: &ServerClock,
    ) -> Result<OfServer, sqlx::Error> {
        let sent = Instant::now();
        let rows = self.of_server.fetch(connection, &[], form).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let us: i64 = row.try_get("us")?;
        clock.learn(sent, Instant::now(), u64::try_from(us).unwrap_or_default());
        Ok(OfServer { is_read_only: row.try_get("is_read_only")?, started: row.try_get("started")? })
    }

    async fn table(&self, connection: &mut PgConnection, form: Form) -> Result<OfTable, sqlx::Error> {
        OfTable::read(&self.of_table.fetch(connection, &[], form).await?)
    }
}

/// Returns what an operator is told of a server that may lose data that it has confirmed.
pub(super) fn may_lose(config: &Config, danger: &str) -> String {
    format!("PostgreSQL at {} may lose locks that it has granted, if it crashes: {danger}", config.address())
}

async fn create_table(connection: &mut PgConnection, config: &Config) -> Result<(), LockError> {
    let ddl = format!("{}; {}", set_lock_timeout("LOCAL", config.lock_timeout()), config.table.ddl());
    // Two clients that create the table at once may disturb each other.
    for _ in 0..2 {
        let created = connection.execute(sqlx::raw_sql(AssertSqlSafe(ddl.clone()))).await;
        match created {
            Ok(_) => {
                tracing::info!("the table {} is created", config.table.name());
                return Ok(());
            }
            // unique_violation, duplicate_object, duplicate_table
            Err(error) if error::has_code(&error, &["23505", "42710", "42P07"]) => {}
            Err(error) if Meaning::of(&error) == Meaning::Locked => {
                return Err(error::explain(error, config));
            }
            Err(error) => {
                let table = config.table.name();
                let ddl = config.table.ddl();
                let message = format!("the table {table} cannot be created ({error}); create it with: {ddl}");
                return Err(error::permanent(message).with_fault(FindingCode::Table));
            }
        }
    }
    Ok(())
}

/// A server, as a new connection finds it.
struct OfServer {
    is_read_only: bool,
    /// When the server was started, us.
    started: i64,
}

/// A server's answer about itself and the table.
pub(super) struct OfTable {
    /// Why the server may lose data that it has confirmed.
    pub(super) danger: Option<String>,
    may_change: bool,
    /// Whether row security applies to the user, and the table has no permissive policy `FOR ALL` commands.
    hides_rows: bool,
    /// The columns that the table does not have.
    lacks: Option<String>,
    /// `None` without the table.
    identity: Option<String>,
    /// The table's name, with its schema.
    pub(super) name: Option<String>,
    /// Other tables of the database with the same name, in other schemas.
    pub(super) others: Option<String>,
}

impl OfTable {
    pub(super) fn read(rows: &[PgRow]) -> Result<Self, sqlx::Error> {
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        Ok(Self {
            danger: row.try_get("danger")?,
            may_change: row.try_get::<Option<bool>, _>("may_change")?.unwrap_or_default(),
            hides_rows: row.try_get::<Option<bool>, _>("hides_rows")?.unwrap_or_default(),
            lacks: row.try_get("lacks")?,
            identity: row.try_get("identity")?,
            name: row.try_get("name")?,
            others: row.try_get("others")?,
        })
    }
}
