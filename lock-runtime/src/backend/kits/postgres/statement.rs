//! The statements. The arguments of a prepared statement are sent as parameters. The arguments of a statement that is
//! not prepared, for example behind a pooler of transactions, are literals in the text of the statement.

use std::{
    borrow::Cow,
    fmt::Write as _,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, Executor, PgConnection, Postgres, Row,
    postgres::{PgArguments, PgRow},
    query::Query,
};

use super::{
    error::not_understood,
    table::{Table, without_comments},
    uuid::Uuid,
};
use crate::{LockError, OwnerToken, backend::common::hex, time::backoff::random};

/// The beginning of each statement's text, which identifies the library's statements in `pg_stat_activity`.
pub(super) const MARK: &str = "/* lock-runtime */ ";

/// The number of the next statement. The first number is random, so that processes that share a pooler use different
/// numbers.
static ECHO: LazyLock<AtomicI64> = LazyLock::new(|| AtomicI64::new(i64::from(random()) << 30));

/// An argument of a statement.
#[derive(Clone, Debug)]
pub(crate) enum Arg<'a> {
    Text(Cow<'a, str>),
    Number(i64),
    /// A `bigint`, or NULL.
    OptionalNumber(Option<i64>),
    /// A `uuid`, or NULL.
    Owner(Option<OwnerToken>),
    Texts(Vec<&'a str>),
    Numbers(Vec<i64>),
    Owners(Vec<OwnerToken>),
    /// A `uuid` that is sent only as a parameter. In a statement with literals, NULL is sent instead of the `uuid`,
    /// because `pg_stat_activity` would show the `uuid` before the statement is executed.
    Secret(Option<Uuid>),
    Secrets(Vec<Option<Uuid>>),
}

/// How a statement is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The statement is prepared once for the connection.
    Prepared,
    /// The statement needs nothing of its session, and leaves nothing there: the server makes a plan each time, and the
    /// statement waits at most `lock_timeout` for a lock of another transaction.
    Text { lock_timeout: Duration },
}

/// A statement about the locks of one table.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    text: Arc<str>,
    /// The same statement without its notification.
    unnotified: Option<Arc<Self>>,
}

impl Statement {
    /// Makes a statement of the text of a file in the folder `sql`. In this text, `{table}` stands for the table,
    /// `{channel}` for the channel of notifications, and `{lock}` for the hash of the lock's name. Notifications
    /// contain this hash instead of the name, because any user of the database may listen.
    pub(crate) fn of(text: &str, table: &Table) -> Self {
        let text = without_comments(text);
        let text = text
            .replace("{table}", &table.name())
            .replace("{channel}", &table.channel())
            .replace("{lock}", "encode(sha256(convert_to(l.name, 'UTF8')), 'hex')");
        Self { text: format!("{MARK}{text}").into(), unnotified: None }
    }

    /// Lets the statement be executed without its notification if the server refuses to notify: the queue of
    /// notifications, which all databases of a server share, may be full, or the right to notify may have been taken
    /// away.
    pub(crate) fn or_unnotified(self) -> Self {
        let text = self.text.replace("pg_notify(", "concat(");
        Self { unnotified: Some(Arc::new(Self { text: text.into(), unnotified: None })), ..self }
    }

    pub(crate) fn unnotified(&self) -> Option<&Self> {
        self.unnotified.as_deref()
    }

    /// Executes the statement.
    ///
    /// One argument is added: a number that each row of the answer has to repeat. Without this number, two clients
    /// could believe that they hold the lock after a driver or pooler has confused the answers to two statements.
    ///
    /// # Cancel safety
    /// If dropped, the statement may still be executed, and the connection must not be used again.
    pub(crate) async fn fetch(
        &self,
        connection: &mut PgConnection,
        args: &[Arg<'_>],
        form: Form,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let echo = ECHO.fetch_add(1, Ordering::Relaxed);
        let rows = match form {
            Form::Prepared => {
                let mut query = self.query();
                for arg in args {
                    query = bind(query, arg);
                }
                query.bind(echo).fetch_all(connection).await?
            }
            Form::Text { lock_timeout } => {
                let args = [args, &[Arg::Number(echo)]].concat();
                let text = self.with_literals(&args);
                // Statements that are sent together are one transaction.
                let text = format!("{MARK}{}; {text}", set_lock_timeout("LOCAL", lock_timeout));
                Box::pin(connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(text)))).await?
            }
        };
        let repeats = |row: &PgRow| row.try_get::<i64, _>("echo").is_ok_and(|number| number == echo);
        if rows.iter().all(repeats) {
            Ok(rows)
        } else {
            Err(sqlx::Error::Protocol("it belongs to another request".into()))
        }
    }

    /// Returns the statement without its arguments.
    pub(crate) fn query(&self) -> Query<'_, Postgres, PgArguments> {
        sqlx::query(AssertSqlSafe(Arc::clone(&self.text)))
    }

    /// Writes the arguments into the text.
    fn with_literals(&self, args: &[Arg<'_>]) -> String {
        let mut parts = self.text.split('$');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = part.split_at(digits);
            let arg = number.parse::<usize>().ok().and_then(|number| args.get(number.checked_sub(1)?));
            if let Some(arg) = arg {
                write_literal(&mut text, arg);
            } else {
                text.push('$');
                text.push_str(number);
            }
            text.push_str(rest);
        }
        text
    }
}

/// The texts of the statements that a connection has prepared.
#[derive(Debug, Default)]
pub(super) struct Prepared(Vec<Arc<str>>);

impl Prepared {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a statement; returns whether the statement is new, and preparing it takes a round trip.
    pub(super) fn add(&mut self, statement: &Statement) -> bool {
        let is_new = !self.0.iter().any(|text| Arc::ptr_eq(text, &statement.text));
        if is_new {
            self.0.push(Arc::clone(&statement.text));
        }
        is_new
    }
}

fn bind<'a>(query: Query<'a, Postgres, PgArguments>, arg: &'a Arg<'_>) -> Query<'a, Postgres, PgArguments> {
    match arg {
        Arg::Text(text) => query.bind(text.as_ref()),
        Arg::Number(number) => query.bind(*number),
        Arg::OptionalNumber(number) => query.bind(*number),
        Arg::Owner(token) => query.bind(token.map(uuid)),
        Arg::Texts(texts) => query.bind(texts.as_slice()),
        Arg::Numbers(numbers) => query.bind(numbers.as_slice()),
        Arg::Owners(tokens) => query.bind(tokens.iter().copied().map(uuid).collect::<Vec<_>>()),
        Arg::Secret(secret) => query.bind(*secret),
        Arg::Secrets(secrets) => query.bind(secrets.as_slice()),
    }
}

/// Returns the statement that sets how long other statements wait for a lock.
pub(super) fn set_lock_timeout(scope: &str, lock_timeout: Duration) -> String {
    format!("SET {scope} lock_timeout = '{}ms'", lock_timeout.as_millis().max(1))
}

/// Writes an argument as a literal. Texts are in hexadecimal, so that none of their characters means anything in SQL.
fn write_literal(text: &mut String, arg: &Arg<'_>) {
    let quote =
        |value: &str| format!("convert_from(decode('{}', 'hex'), 'UTF8')", hex::text(value.as_bytes()));
    let owner = |token: OwnerToken| format!("'{:032x}'::uuid", token.expose());
    let array = |text: &mut String, of: &str, values: Vec<String>| {
        write!(text, "ARRAY[{}]::{of}[]", values.join(", "))
    };
    let _ = match arg {
        Arg::Text(value) => write!(text, "{}", quote(value)),
        Arg::Number(number) | Arg::OptionalNumber(Some(number)) => write!(text, "({number})::bigint"),
        Arg::OptionalNumber(None) => write!(text, "NULL::bigint"),
        Arg::Texts(values) => array(text, "text", values.iter().map(|value| quote(value)).collect()),
        Arg::Numbers(values) => array(text, "bigint", values.iter().map(i64::to_string).collect()),
        Arg::Owner(token) => write!(text, "{}", token.map_or_else(|| "NULL::uuid".into(), owner)),
        Arg::Owners(tokens) => array(text, "uuid", tokens.iter().copied().map(owner).collect()),
        Arg::Secret(_) => write!(text, "NULL::uuid"),
        Arg::Secrets(secrets) => array(text, "uuid", secrets.iter().map(|_| "NULL".into()).collect()),
    };
}

/// Reads an answer that has to have `count` rows.
pub(crate) fn read_rows<T>(
    rows: &[PgRow],
    count: usize,
    read: impl Fn(&PgRow) -> Result<T, sqlx::Error>,
) -> Result<Vec<T>, LockError> {
    if rows.len() != count {
        return Err(not_understood(sqlx::Error::RowNotFound));
    }
    rows.iter().map(read).collect::<Result<_, _>>().map_err(not_understood)
}

/// Converts an owner to the server's type.
pub(crate) fn uuid(token: OwnerToken) -> Uuid {
    Uuid(token.expose())
}

/// Converts a length of time to an argument, in µs.
pub(crate) fn micros(length: Duration) -> Arg<'static> {
    Arg::Number(i64::try_from(length.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A silent server is noticed after one round trip more than needed if a prepared statement counts as a new one.
    #[test]
    fn a_statement_is_prepared_once_and_another_time_without_its_notification() {
        let of = |text| Statement::of(text, &Table::default());
        let (first, second) = (of("SELECT pg_notify('')").or_unnotified(), of("SELECT 2"));
        let mut prepared = Prepared::default();
        assert!(prepared.is_empty());
        for statement in [&first, &second, first.unnotified().expect("a second form")] {
            assert!(prepared.add(statement), "{statement:?}");
            assert!(!prepared.add(&statement.clone()), "{statement:?}");
        }
        assert!(!prepared.is_empty() && !prepared.add(&first));
    }

    #[test]
    fn literals_stand_for_their_parameters_and_cannot_break_out() {
        let statement = Statement::of("-- $1\nSELECT $1, $2, $10 FROM {table}", &Table::default());
        let mut args = vec![Arg::Text("'; DROP".into()), Arg::Number(-7)];
        args.extend((0..7).map(Arg::Number));
        args.push(Arg::Texts(vec!["a", "$1"]));
        assert_eq!(
            statement.with_literals(&args),
            "/* lock-runtime */ SELECT convert_from(decode('273b2044524f50', 'hex'), 'UTF8'), (-7)::bigint, \
             ARRAY[convert_from(decode('61', 'hex'), 'UTF8'), convert_from(decode('2431', 'hex'), 'UTF8')]::text[] \
             FROM \"distributed_locks\""
        );
        let secret = Uuid(7);
        let secrets = Statement::of("$1, $2", &Table::default())
            .with_literals(&[Arg::Secret(Some(secret)), Arg::Secrets(vec![Some(secret), None])]);
        assert_eq!(
            secrets, "/* lock-runtime */ NULL::uuid, ARRAY[NULL, NULL]::uuid[]",
            "no secret is a literal"
        );
        let numbers = Statement::of("$1", &Table::default()).with_literals(&[Arg::Numbers(vec![1, -2])]);
        assert_eq!(numbers, "/* lock-runtime */ ARRAY[1, -2]::bigint[]");
    }
}
