//! What a PostgreSQL server says of itself, and what of it would bite the users of locks.

use std::time::{Duration, SystemTime};

use sqlx::{Row, postgres::PgRow};
use tokio::time::timeout;

use super::{
    connections::{Connections, FOR_RENEWALS, Lane},
    error::{self, Meaning, not_understood},
    fitness::{OfTable, may_lose},
    listener::{self, Found, Session},
    statement::Statement,
};
use crate::{
    LockError,
    backend::{
        ClockOffset, Examined, Finding,
        FindingCode::{Fsync, Polling, Replicas, SessionLimits, Tables, Topology, Unread, Version},
        ServerReport, measure,
    },
};

/// A client of the rows uses one connection for callers, those for renewals, one for looks, and one for notifications.
const LEAST_CONNECTIONS: i64 = 1 + FOR_RENEWALS as i64 + 1 + 1;

/// What a store needs of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Rows with leases of this `ttl`.
    Rows { ttl: Duration },
    /// Sessions that end after this silence, and not earlier.
    Sessions { timeout: Duration },
}

impl Needs {
    /// Returns the oldest major version of the server.
    const fn version(self) -> i64 {
        match self {
            Self::Rows { .. } => 12,
            Self::Sessions { .. } => 14,
        }
    }
}

/// Examines a server that has passed the checks of a new connection.
///
/// # Cancel safety
/// As for [`Connections::run`].
pub(crate) async fn examine(
    connections: &Connections,
    channel: &str,
    needs: Needs,
) -> Result<Examined, LockError> {
    let Connections { config, fitness, .. } = connections;
    let server = config.address();
    let mut findings = Vec::new();
    // The first call may have to connect.
    connections.run(Lane::Here, &fitness.of_server, |_| Vec::new()).await?;
    let trips = measure(|| connections.run(Lane::Here, &fitness.of_server, |_| Vec::new())).await?;
    let mut report = ServerReport::new(&server).with_round_trips(&trips);

    let rows = connections.run(Lane::Here, &fitness.of_table, |_| Vec::new()).await?.rows;
    let table = OfTable::read(&rows).map_err(not_understood)?;
    report = report.with_fact("table", table.name.clone());
    findings.extend(of_crashes(connections, &table));
    findings.extend(of_tables(&table).filter(|_| !config.table.has_schema()));

    let statement = Statement::of(include_str!("sql/examine.sql"), &config.table);
    let sent = SystemTime::now();
    match connections.run(Lane::Here, &statement, |_| Vec::new()).await {
        Ok(answer) => {
            let received = SystemTime::now();
            let row = answer.rows.first().ok_or(sqlx::Error::RowNotFound).map_err(not_understood)?;
            let said = Said::read(row).map_err(not_understood)?;
            let clock = ClockOffset::between(sent, SystemTime::UNIX_EPOCH + said.time, received);
            report = said.add_to(report.with_clock(Some(clock)), needs);
            findings.extend(said.findings(needs, fitness.outlives));
        }
        Err(failure) => {
            let message =
                format!("what the server says of itself is not known: {}", LockError::from(failure));
            let remedy =
                "let the user read pg_stat_activity, pg_stat_replication, pg_roles and pg_database, as usual";
            findings.push(Finding::warning(Unread, message, remedy));
        }
    }
    findings.extend(of_notifications(connections, channel, needs).await?);
    Ok(Examined {
        servers: vec![report],
        findings: findings.into_iter().map(|finding| finding.at(&server)).collect(),
    })
}

/// The reason for which the log warns of a new server.
fn of_crashes(connections: &Connections, table: &OfTable) -> Option<Finding> {
    let danger = table.danger.as_deref().filter(|_| connections.fitness.outlives)?;
    let name = connections.config.table.name();
    let remedy = match danger {
        "fsync is off" => "set `fsync = on` in postgresql.conf, and reload it".into(),
        "synchronous_commit is off" => {
            "set `synchronous_commit = on` in postgresql.conf, or for the user alone (ALTER ROLE … SET \
             synchronous_commit = on;)"
                .into()
        }
        _ => format!("ALTER TABLE {name} SET LOGGED;"),
    };
    Some(Finding::danger(Fsync, may_lose(&connections.config, danger), remedy))
}

fn of_tables(table: &OfTable) -> Option<Finding> {
    let (name, others) = (table.name.as_deref()?, table.others.as_deref()?);
    let message = format!(
        "the database has several tables of locks: {name} is used here, and there is {others}; services with another \
         `search_path` use another table, and then do not exclude each other"
    );
    let remedy = format!("name the table with its schema in each URL, as in `table={name}`");
    Some(Finding::warning(Tables, message, remedy))
}

/// Finds out whether notifications arrive.
async fn of_notifications(
    connections: &Connections,
    channel: &str,
    needs: Needs,
) -> Result<Option<Finding>, LockError> {
    let config = &connections.config;
    let session = match needs {
        Needs::Rows { .. } => Session::New,
        Needs::Sessions { .. } => Session::Own,
    };
    // Two connections are made, one after the other.
    let limit = config.connect_timeout * 2;
    let found = timeout(limit, listener::connect(channel, config, session)).await;
    let found = found.map_err(|_| error::out_of_reach(limit, config))?;
    Ok(match found {
        Ok(Found::Notified(_)) => None,
        Ok(Found::Unnotified(_, cause)) => Some(Finding::warning(
            Polling,
            format!(
                "the server takes no notifications ({cause}), so waiters ask for locks every 50 to 100 ms"
            ),
            "let the user execute pg_notify, and look for a session that listens and does not read (pg_notification_queue_usage)",
        )),
        Ok(Found::Pooled) if session == Session::New => Some(Finding::warning(
            Polling,
            "a pooler gives each transaction another session, so no notifications arrive, and waiters ask for locks every \
             50 to 100 ms; the locks themselves are safe",
            "connect past the pooler, or let it keep a session for each client (PgBouncer: `pool_mode = session`)",
        )),
        Ok(Found::Pooled) => {
            let error = error::pooled(config);
            Some(Finding::danger(Topology, error.message(), ""))
        }
        Err(error) if Meaning::of(&error) == Meaning::Refused => Some(Finding::warning(
            Polling,
            format!(
                "the server refuses what a client has to know before it relies on notifications ({error}), so waiters ask \
                 for locks every 50 to 100 ms"
            ),
            "let the user read pg_stat_activity, as usual",
        )),
        Err(error) => {
            let error = error::cannot_connect(error, config);
            let Some(fault) = error.fault() else { return Err(error) };
            Some(Finding::danger(fault, error.message(), ""))
        }
    })
}

/// A number of connections, and its limit.
#[derive(Clone, Copy, Debug)]
struct Room {
    of: &'static str,
    used: i64,
    most: i64,
}

/// What a server says of itself.
#[derive(Clone, Debug)]
struct Said {
    /// Since 1970.
    time: Duration,
    version: String,
    number: i64,
    fsync: String,
    full_page_writes: String,
    synchronous_commit: String,
    synchronous_standby_names: String,
    replicas: i64,
    idle_session_timeout: Duration,
    /// How long the server's system waits for a silent host; zero if it is not known.
    keepalive: Duration,
    rooms: Vec<Room>,
}

impl Said {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let number = |name: &str| row.try_get::<Option<i64>, _>(name).map(Option::unwrap_or_default);
        let positive = |name: &str| number(name).map(|number| u64::try_from(number).unwrap_or_default());
        let keepalive = match positive("keepalives_idle")? {
            0 => 0,
            idle => idle.saturating_add(positive("keepalives_unanswered")?),
        };
        let rooms = [
            ("connections to the server", "of_server", "most_of_server"),
            ("connections of the user", "of_user", "most_of_user"),
            ("connections to the database", "of_database", "most_of_database"),
        ];
        let mut limited = Vec::new();
        for (of, used, most) in rooms {
            // A negative number is no limit.
            let (used, most) = (number(used)?, row.try_get::<Option<i64>, _>(most)?.unwrap_or(-1));
            limited.extend((most >= 0).then_some(Room { of, used, most }));
        }
        Ok(Self {
            time: Duration::from_micros(positive("us")?),
            version: row.try_get("version")?,
            number: number("number")?,
            fsync: row.try_get("fsync")?,
            full_page_writes: row.try_get("full_page_writes")?,
            synchronous_commit: row.try_get("synchronous_commit")?,
            synchronous_standby_names: row.try_get("synchronous_standby_names")?,
            replicas: number("replicas")?,
            idle_session_timeout: Duration::from_millis(positive("idle_ms")?),
            keepalive: Duration::from_secs(keepalive),
            rooms: limited,
        })
    }

    fn add_to(&self, report: ServerReport, needs: Needs) -> ServerReport {
        let mut report = report
            .with_version(Some(format!("PostgreSQL {}", self.version)))
            .with_role(Some("primary".into()))
            .with_fact("fsync", Some(&*self.fsync))
            .with_fact("full_page_writes", Some(&*self.full_page_writes))
            .with_fact("synchronous_commit", Some(&*self.synchronous_commit))
            .with_fact("replicas", Some(self.replicas.to_string()));
        if !self.synchronous_standby_names.is_empty() {
            report = report.with_fact("synchronous_standby_names", Some(&*self.synchronous_standby_names));
        }
        if let Needs::Sessions { timeout } = needs {
            report = report.with_fact("session_timeout", Some(format!("{timeout:?}")));
        }
        for Room { of, used, most } in &self.rooms {
            report = report.with_fact(of, Some(format!("{used} of {most}")));
        }
        report
    }

    fn findings(&self, needs: Needs, outlives: bool) -> Vec<Finding> {
        let mut findings: Vec<_> =
            [self.of_version(needs), self.of_sessions(needs)].into_iter().flatten().collect();
        if outlives {
            findings.extend(self.of_pages());
            findings.extend(self.of_replicas());
        }
        findings.extend(self.rooms.iter().filter_map(|room| of_room(room, needs)));
        findings
    }

    fn of_version(&self, needs: Needs) -> Option<Finding> {
        let needed = needs.version();
        (self.number / 10_000 < needed).then(|| {
            let message = format!("PostgreSQL {} is too old: version {needed} is needed", self.version);
            Finding::danger(Version, message, "upgrade the server")
        })
    }

    fn of_pages(&self) -> Option<Finding> {
        (self.full_page_writes == "off").then(|| {
            let message = "full_page_writes is off: if the system crashes while it writes a page, rows of locks may be \
                           damaged, unless the file system writes each page as a whole, as ZFS does";
            Finding::warning(Fsync, message, "set `full_page_writes = on` in postgresql.conf, and reload it")
        })
    }

    fn of_replicas(&self) -> Option<Finding> {
        let waits = !self.synchronous_standby_names.is_empty()
            && !matches!(&*self.synchronous_commit, "off" | "local");
        (self.replicas > 0 && !waits).then(|| {
            let message = "the server has replicas, and grants locks that none of them has: a failover may lose them";
            let remedy = "set `synchronous_standby_names`, for example to `ANY 1 (*)`, with `synchronous_commit = on`, or \
                          promote no replica while locks are held";
            Finding::warning(Replicas, message, remedy)
        })
    }

    fn of_sessions(&self, needs: Needs) -> Option<Finding> {
        match needs {
            Needs::Rows { ttl } => {
                let (idle, between) = (self.idle_session_timeout, ttl / 3);
                (!idle.is_zero() && idle <= between).then(|| {
                    let message = format!(
                        "the server ends a connection that is idle for {idle:?} (idle_session_timeout), and renewals are \
                         {between:?} apart, so each of them has to connect again"
                    );
                    let remedy = "add `options=-c%20idle_session_timeout=0` to the URL, or ALTER ROLE … SET \
                                  idle_session_timeout = 0;";
                    Finding::warning(SessionLimits, message, remedy)
                })
            }
            Needs::Sessions { timeout } => {
                let keepalive = self.keepalive;
                (!keepalive.is_zero() && keepalive < timeout).then(|| {
                    let message = format!(
                        "the server's system ends the session of a host that does not answer for {keepalive:?} (TCP \
                         keepalive), so another client may get a lock before its holder stops after {timeout:?}"
                    );
                    let remedy = "raise `net.ipv4.tcp_keepalive_time` on the server, or choose a shorter \
                                  `session_timeout`";
                    Finding::danger(SessionLimits, message, remedy)
                })
            }
        }
    }
}

fn of_room(room: &Room, needs: Needs) -> Option<Finding> {
    let Room { of, used, most } = room;
    let remedy = "close connections that are not needed, or raise the limit (max_connections, ALTER ROLE … CONNECTION \
                  LIMIT, ALTER DATABASE … CONNECTION LIMIT)";
    if *used >= most - most / 10 {
        let message =
            format!("{used} of {most} {of} are used: when none is left, locks cannot be acquired or renewed");
        return Some(Finding::warning(SessionLimits, message, remedy));
    }
    let needed = match needs {
        Needs::Rows { .. } => LEAST_CONNECTIONS,
        Needs::Sessions { .. } => 2,
    };
    (*most < needed).then(|| {
        let message =
            format!("the limit of {most} {of} is less than one client of the locks may use ({needed})");
        Finding::warning(SessionLimits, message, remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{FindingCode, Severity};

    const ROWS: Needs = Needs::Rows { ttl: Duration::from_secs(30) };
    const SESSIONS: Needs = Needs::Sessions { timeout: Duration::from_secs(10) };

    fn good() -> Said {
        Said {
            time: Duration::ZERO,
            version: "15.1".into(),
            number: 150_001,
            fsync: "on".into(),
            full_page_writes: "on".into(),
            synchronous_commit: "on".into(),
            synchronous_standby_names: String::new(),
            replicas: 0,
            idle_session_timeout: Duration::ZERO,
            keepalive: Duration::from_secs(7_875),
            rooms: vec![Room { of: "connections to the server", used: 5, most: 97 }],
        }
    }

    fn found(said: &Said, needs: Needs) -> Vec<(FindingCode, Severity)> {
        let findings = said.findings(needs, matches!(needs, Needs::Rows { .. }));
        findings.iter().map(|finding| (finding.code, finding.severity)).collect()
    }

    #[test]
    fn a_good_server_has_no_findings() {
        assert_eq!(found(&good(), ROWS), []);
        assert_eq!(found(&good(), SESSIONS), []);
    }

    #[test]
    fn a_version_is_too_old_for_one_store_and_not_for_the_other() {
        for (number, rows, sessions) in [(110_022, 1, 1), (120_000, 0, 1), (139_999, 0, 1), (140_000, 0, 0)] {
            let said = Said { number, ..good() };
            for (needs, count) in [(ROWS, rows), (SESSIONS, sessions)] {
                assert_eq!(
                    found(&said, needs),
                    vec![(Version, Severity::Danger); count],
                    "{number} {needs:?}"
                );
            }
        }
    }

    #[test]
    fn a_system_that_ends_the_session_of_a_silent_host_too_early_is_a_danger() {
        for (seconds, count) in [(0, 0), (9, 1), (10, 0)] {
            let said = Said { keepalive: Duration::from_secs(seconds), ..good() };
            assert_eq!(found(&said, SESSIONS), vec![(SessionLimits, Severity::Danger); count], "{seconds}");
            assert_eq!(found(&said, ROWS), [], "a lease does not depend on its connection");
        }
    }

    #[test]
    fn connections_that_end_between_two_renewals_are_found() {
        for (seconds, count) in [(0, 0), (10, 1), (11, 0)] {
            let said = Said { idle_session_timeout: Duration::from_secs(seconds), ..good() };
            assert_eq!(found(&said, ROWS), vec![(SessionLimits, Severity::Warning); count], "{seconds}");
            assert_eq!(found(&said, SESSIONS), [], "a session sets it");
        }
    }

    #[test]
    fn a_failover_loses_locks_unless_each_commit_waits_for_a_replica() {
        for (replicas, names, commit, count) in [
            (0, "", "on", 0),
            (1, "", "on", 1),
            (1, "*", "on", 0),
            (1, "*", "local", 1),
            (2, "*", "remote_write", 0),
        ] {
            let said = Said {
                replicas,
                synchronous_standby_names: names.into(),
                synchronous_commit: commit.into(),
                ..good()
            };
            assert_eq!(found(&said, ROWS), vec![(Replicas, Severity::Warning); count], "{names} {commit}");
        }
    }

    #[test]
    fn connections_near_their_limit_or_a_limit_below_the_need_are_found() {
        for (used, most, rows, sessions) in
            [(89, 100, 0, 0), (90, 100, 1, 1), (1, 4, 1, 0), (1, 5, 0, 0), (1, 1, 1, 1)]
        {
            let said = Said { rooms: vec![Room { of: "connections of the user", used, most }], ..good() };
            for (needs, count) in [(ROWS, rows), (SESSIONS, sessions)] {
                let expected = vec![(SessionLimits, Severity::Warning); count];
                assert_eq!(found(&said, needs), expected, "{used} of {most}");
            }
        }
    }
}
