//! The statements, each with its arguments as parameters, or as literals behind a pooler that keeps no sessions.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use sqlx::{
    AssertSqlSafe, Executor, PgConnection, Postgres,
    postgres::{PgArguments, PgRow},
    query::Query,
};

use super::table::{Table, without_comments};
use crate::OwnerToken;

/// An argument of a statement.
#[derive(Clone, Debug)]
pub(crate) enum Arg {
    Text(String),
    Number(i64),
    Texts(Vec<String>),
    Numbers(Vec<i64>),
}

/// A statement about the locks of one table.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    text: Arc<str>,
    /// A bit of its own, to be found among the statements that a connection has prepared.
    bit: u32,
}

impl Statement {
    /// Reads the text of a file in the folder `sql`, which may contain `grant.sql`.
    pub(crate) fn of(text: &str, table: &Table, bit: u32) -> Self {
        let text = &text.replace("{grant}", include_str!("sql/grant.sql"));
        let text = without_comments(text);
        Self { text: text.replace("{table}", &table.name()).into(), bit }
    }

    pub(crate) fn bit(&self) -> u32 {
        self.bit
    }

    /// Executes the statement.
    ///
    /// `prepared` is whether it is prepared once for the connection. Otherwise it needs nothing of its session, and the
    /// server makes a plan each time.
    ///
    /// # Cancel safety
    /// Dropped, the statement may still be executed, and the connection must not be used again.
    pub(crate) async fn fetch(
        &self,
        connection: &mut PgConnection,
        args: &[Arg],
        prepared: bool,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        if !prepared {
            let statement = sqlx::raw_sql(AssertSqlSafe(self.with_literals(args)));
            return Box::pin(connection.fetch_all(statement)).await;
        }
        let mut query = self.query();
        for arg in args {
            query = match arg {
                Arg::Text(text) => query.bind(text.as_str()),
                Arg::Number(number) => query.bind(*number),
                Arg::Texts(texts) => query.bind(texts.as_slice()),
                Arg::Numbers(numbers) => query.bind(numbers.as_slice()),
            };
        }
        query.fetch_all(connection).await
    }

    /// Returns the statement without its arguments.
    pub(crate) fn query(&self) -> Query<'_, Postgres, PgArguments> {
        sqlx::query(AssertSqlSafe(Arc::clone(&self.text)))
    }

    /// Writes the arguments into the text.
    fn with_literals(&self, args: &[Arg]) -> String {
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

/// Texts are written in hexadecimal, so that none of their characters means anything in SQL.
fn write_literal(text: &mut String, arg: &Arg) {
    let quote = |value: &str| {
        let hex = value.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        format!("convert_from(decode('{hex}', 'hex'), 'UTF8')")
    };
    let list = |values: Vec<String>| values.join(", ");
    let _ = match arg {
        Arg::Text(value) => write!(text, "{}", quote(value)),
        Arg::Number(number) => write!(text, "({number})::bigint"),
        Arg::Texts(values) => {
            write!(text, "ARRAY[{}]::text[]", list(values.iter().map(|value| quote(value)).collect()))
        }
        Arg::Numbers(values) => {
            write!(text, "ARRAY[{}]::bigint[]", list(values.iter().map(i64::to_string).collect()))
        }
    };
}

/// An owner as an argument.
pub(crate) fn owner(token: OwnerToken) -> Arg {
    Arg::Text(owner_text(token))
}

/// An owner as the server reads a UUID.
pub(crate) fn owner_text(token: OwnerToken) -> String {
    format!("{:032x}", token.expose())
}

/// A length of time as the statements take it.
pub(crate) fn micros(length: Duration) -> Arg {
    Arg::Number(i64::try_from(length.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_stand_for_their_parameters_and_cannot_break_out() {
        let statement = Statement::of("-- $1\nSELECT $1, $2, $10 FROM {table}", &Table::default(), 0);
        let mut args = vec![Arg::Text("'; DROP".into()), Arg::Number(-7)];
        args.extend((0..7).map(Arg::Number));
        args.push(Arg::Texts(vec!["a".into(), "$1".into()]));
        assert_eq!(
            statement.with_literals(&args),
            "SELECT convert_from(decode('273b2044524f50', 'hex'), 'UTF8'), (-7)::bigint, \
             ARRAY[convert_from(decode('61', 'hex'), 'UTF8'), convert_from(decode('2431', 'hex'), 'UTF8')]::text[] \
             FROM \"distributed_locks\""
        );
        let numbers = Statement::of("$1", &Table::default(), 0).with_literals(&[Arg::Numbers(vec![1, -2])]);
        assert_eq!(numbers, "ARRAY[1, -2]::bigint[]");
    }
}
