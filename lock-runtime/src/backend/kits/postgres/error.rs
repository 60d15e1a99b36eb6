//! The meaning of the driver's errors.

use std::{fmt, time::Duration};

use sqlx::{
    Error,
    postgres::{PgDatabaseError, PgSeverity},
};

use super::{config::Config, table::Table};
use crate::{LockError, LockErrorKind, backend::FindingCode};

/// Why a statement has no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The statement was not executed.
    NotExecuted(LockError),
    /// The statement was not executed, because another transaction changes the row of the lock.
    Locked(LockError),
    /// The server did not accept the statement.
    Refused(LockError),
    /// The statement may have been executed, or may be executed later.
    Unknown(LockError),
}

impl From<Failure> for LockError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotExecuted(error)
            | Failure::Locked(error)
            | Failure::Refused(error)
            | Failure::Unknown(error) => error,
        }
    }
}

/// The meaning of an error for the statement and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The connection broke, or its session is ending: the statement may have been executed.
    Broken,
    /// The statement failed because of a concurrent transaction, and can be repeated at once.
    Conflict,
    /// The statement has waited for a lock of another transaction, for as long as it may wait.
    Locked,
    /// The statement is not prepared in this session, or another statement has its name: a pooler has changed the
    /// session.
    OtherSession,
    /// The server executes no changes in this session: the server is a replica, or may have become a replica a moment
    /// ago, or the transactions of the session are read-only.
    ReadOnly,
    /// The server refused the statement.
    Refused,
}

impl Meaning {
    pub(crate) fn of(error: &Error) -> Self {
        let Some(database) = database(error) else {
            return Self::Broken;
        };
        match database.code() {
            // serialization_failure, deadlock_detected
            "40001" | "40P01" => Self::Conflict,
            // lock_not_available
            "55P03" => Self::Locked,
            // invalid_sql_statement_name, duplicate_prepared_statement
            "26000" | "42P05" => Self::OtherSession,
            // read_only_sql_transaction
            "25006" => Self::ReadOnly,
            _ if matches!(database.severity(), PgSeverity::Fatal | PgSeverity::Panic) => Self::Broken,
            _ => Self::Refused,
        }
    }
}

fn database(error: &Error) -> Option<&PgDatabaseError> {
    match error {
        Error::Database(error) => error.try_downcast_ref(),
        _ => None,
    }
}

/// Returns whether the server's error has one of these codes.
pub(crate) fn has_code(error: &Error, codes: &[&str]) -> bool {
    database(error).is_some_and(|error| codes.contains(&error.code()))
}

/// Returns whether a statement that has waited for a lock has waited for a row's lock, rather than for the table's.
pub(crate) fn is_of_a_row(error: &Error) -> bool {
    // If a statement has waited for a row's lock, the error has a context, which the driver calls `where`. If a
    // statement has waited for a table's lock, the error has no context.
    database(error).is_some_and(|error| error.r#where().is_some())
}

/// Returns whether the server refuses a notification: its queue, which all databases share, is full, or the user may
/// not notify.
pub(crate) fn is_of_notification(error: &Error) -> bool {
    database(error).is_some_and(|error| match error.code() {
        // program_limit_exceeded
        "54000" => true,
        // insufficient_privilege
        "42501" => error.message().contains("pg_notify"),
        _ => false,
    })
}

/// Returns an error of kind [`Backend`](LockErrorKind::Backend).
pub(crate) fn backend(message: impl Into<String>) -> LockError {
    LockError::backend(message)
}

/// Returns an error that lasts until the server or the configuration is changed.
pub(crate) fn permanent(message: impl Into<String>) -> LockError {
    backend(message).into_permanent()
}

/// Returns the error for a statement without an answer.
pub(crate) fn silent(limit: Duration, config: &Config) -> LockError {
    backend(format!("PostgreSQL at {} did not answer within {limit:?}", config.address()))
}

/// Returns the error for a server to which no connection was made in time.
pub(crate) fn out_of_reach(limit: Duration, config: &Config) -> LockError {
    let address = config.address();
    backend(format!(
        "PostgreSQL at {address} did not answer within {limit:?}; check address, port and firewall"
    ))
}

/// Explains the error of a statement.
pub(crate) fn explain(error: Error, config: &Config) -> LockError {
    let address = config.address();
    let Some(refusal) = database(&error) else {
        return match error {
            Error::Io(error) => backend(format!("the connection to PostgreSQL at {address} broke: {error}")),
            error => backend(format!("PostgreSQL at {address} gave an answer that is not understood"))
                .with_source(error),
        };
    };
    let table = config.table.name();
    let (code, message) = (refusal.code(), refusal.message());
    match code {
        // undefined_table, invalid_schema_name
        "42P01" | "3F000" => missing(&config.table),
        "42501" if message.contains("row-level security") => row_security(&config.table),
        "42501" => may_not(config, message),
        // lock_not_available
        "55P03" => backend(format!(
            "another transaction locks the table {table} or the row of the lock; it is to be found in pg_locks"
        )),
        // undefined_column, datatype_mismatch, undefined_function
        "42703" | "42804" | "42883" => other_columns(&config.table, message),
        // numeric_value_out_of_range
        "22003" => permanent(format!(
            "the fencing tokens of this lock are used up: the `version` in its row in {table} was set, or the server's \
             clock was far in the future"
        )),
        // character_not_in_repertoire, untranslatable_character
        "22021" | "22P05" => LockError::new(
            LockErrorKind::InvalidKey,
            format!("the database does not store this name: its encoding should be UTF8 ({message})"),
        ),
        "25006" => read_only(&address),
        // out_of_memory
        "53200" => backend(format!(
            "PostgreSQL at {address} has no room for more locks: raise its `max_locks_per_transaction` ({message})"
        )),
        _ => backend(format!("PostgreSQL at {address} failed: {message} ({code})")),
    }
}

/// Explains the error of a statement within a transaction of the user.
pub(crate) fn in_transaction(error: Error, config: &Config) -> LockError {
    if let Some(refusal) = database(&error)
        && Meaning::of(&error) == Meaning::Conflict
    {
        let message = "the row of the lock was changed after the transaction had begun: the lock may be lost; roll it back, \
                       and repeat it if the lock is still held";
        return backend(message).with_source(Said::of(refusal));
    }
    let text = explain(error, config);
    let message = format!("the transaction cannot depend on the lock: {}", text.message());
    backend(message).with_source(text)
}

/// Explains why there is no connection.
pub(crate) fn cannot_connect(error: Error, config: &Config) -> LockError {
    let address = config.address();
    let Some(refusal) = database(&error) else {
        return match error {
            Error::Io(error) => backend(format!("cannot connect to PostgreSQL at {address}: {error}")),
            Error::Configuration(error) if error.is::<LockError>() => {
                *error.downcast().expect("just looked at")
            }
            // The driver refuses a password that the server would take as it is.
            Error::Configuration(error) if error.to_string().contains("saslprep") => permanent(format!(
                "the password for PostgreSQL at {address} has a character that SASLprep (RFC 4013) does not allow, such as \
                 an emoji, and the driver does not send it; the user needs another password"
            )),
            Error::PoolClosed => permanent(format!(
                "the program has closed its pool of connections to PostgreSQL at {address}"
            )),
            Error::Tls(error) => {
                backend(format!("cannot connect to PostgreSQL at {address} with TLS: {error}"))
            }
            error => {
                backend(format!("cannot connect to PostgreSQL at {address}; is it a PostgreSQL server?"))
                    .with_source(error)
            }
        };
    };
    let (code, message) = (refusal.code(), refusal.message());
    let refused = backend(format!("PostgreSQL at {address} refuses us: {message} ({code})"));
    match code {
        // invalid_authorization, invalid_password, invalid_catalog_name
        "28000" | "28P01" | "3D000" if !config.may_change() => refused.into_permanent(),
        // too_many_connections
        "53300" => refused.with_source(Said::of(refusal)).with_fault(FindingCode::SessionLimits),
        _ => refused,
    }
}

/// Returns whether no connection was made because the server allows no more.
pub(crate) fn is_full(error: &LockError) -> bool {
    let said = error.cause().and_then(|cause| cause.downcast_ref::<Said>());
    // too_many_connections
    said.is_some_and(|said| said.code == "53300")
}

/// The server's message, without the place in the server's source.
#[derive(Debug)]
struct Said {
    message: String,
    code: String,
}

impl Said {
    fn of(refusal: &PgDatabaseError) -> Self {
        Self { message: refusal.message().to_owned(), code: refusal.code().to_owned() }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for Said {}

/// Returns the error for a server that takes no changes.
pub(crate) fn read_only(address: &str) -> LockError {
    backend(format!(
        "PostgreSQL at {address} takes no changes: it is a replica, or its transactions are read-only; locks need the \
         primary"
    ))
    .with_fault(FindingCode::ReadOnly)
}

/// Returns the error for a pooler that gives each transaction another session, where a lock belongs to its session.
pub(crate) fn pooled(config: &Config) -> LockError {
    let message = format!(
        "PostgreSQL at {} is behind a pooler that gives each transaction another session, in which strangers would hold \
         the locks; connect past it, or use `postgres:`",
        config.address()
    );
    LockError::new(LockErrorKind::Unsupported, message).with_fault(FindingCode::Topology)
}

/// Returns the error for a table that is not there.
pub(crate) fn missing(table: &Table) -> LockError {
    permanent(format!(
        "the table {} does not exist; add `create_table=true` to the URL, or create it with: {}",
        table.name(),
        table.ddl()
    ))
    .with_fault(FindingCode::Table)
}

/// Returns the error for a table that this version of the library has not made.
pub(crate) fn other_columns(table: &Table, message: &str) -> LockError {
    let (name, ddl) = (table.name(), table.ddl());
    permanent(format!(
        "the table {name} has other columns than locks need ({message}): if it belongs to another program, choose another \
         table with the setting `table`; if an earlier version of this library has made it, remove it while no process \
         uses it (DROP TABLE {name};), and create it with: {ddl}"
    ))
    .with_fault(FindingCode::Table)
}

/// Returns the error for a pool whose connections lead to another table than the connections for renewals.
pub(crate) fn other_table(config: &Config) -> LockError {
    permanent(format!(
        "the pool's connections to PostgreSQL at {} and those for renewals, which are made with the pool's options and its \
         hook `after_connect`, lead to two tables {}: the lock would be lost at the end of its `ttl`. Make each connection \
         of the pool find the same table, or name it with its schema (`from_pool_with_table`)",
        config.address(),
        config.table.name()
    ))
    .with_fault(FindingCode::Tables)
}

/// Returns the error for a table whose rows the user may see or change in part only.
pub(crate) fn row_security(table: &Table) -> LockError {
    let table = table.name();
    permanent(format!(
        "row security is on for the table {table}, and hides rows from the user: the owner of the table can switch it off \
         (ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;) or add a policy FOR ALL commands"
    ))
    .with_fault(FindingCode::Rights)
}

/// Returns the error for a user without the rights to use the table.
pub(crate) fn may_not(config: &Config, message: &str) -> LockError {
    let (table, user) = (config.table.name(), config.options.get_username().replace('"', "\"\""));
    permanent(format!(
        "the user may not change the table {table} ({message}); the owner of the table can allow it: GRANT SELECT, \
         INSERT, UPDATE, DELETE ON {table} TO \"{user}\";"
    ))
    .with_fault(FindingCode::Rights)
}

/// Returns the error for an answer without the columns that were asked for.
pub(crate) fn not_understood(error: sqlx::Error) -> LockError {
    backend("PostgreSQL gave an answer that is not understood").with_source(error)
}
