//! What the servers show of themselves to an examination.

mod cluster;
mod sentinels;

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use redis::{FromRedisValue, Value};

pub(crate) use self::cluster::{SETTINGS as CLUSTER_SETTINGS, examine as examine_cluster};
pub(crate) use self::sentinels::examine as examine_sentinels;
use super::{
    super::{error::Failure, rights::missing_right},
    connection::Connection,
    fitness,
};
use crate::{
    LockError,
    backend::{ClockOffset, Finding, FindingCode, ServerReport, Severity, measure},
};

/// The name of a lock that is not acquired: its prefix is examined.
pub(crate) const NAME: &str = "distlock-doctor";

/// What a store needs of a server that it has found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// How bad it is for the locks if the server forgets them, and what follows; `None` if the store does not rely on a
    /// single server.
    pub(crate) memory: Option<(Severity, &'static str)>,
    /// Whether the server may be replaced by one of its replicas.
    pub(crate) may_fail_over: bool,
    /// Whether the replicas confirm each lease.
    pub(crate) is_confirmed: bool,
    /// Settings that are shown, too.
    pub(crate) settings: &'static [&'static str],
}

/// What a server has shown.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) report: ServerReport,
    pub(crate) findings: Vec<Finding>,
    pub(crate) settings: HashMap<String, String>,
    /// Number of connected replicas; `None` if the server does not show it.
    pub(crate) replicas: Option<u64>,
}

/// Asks a server for what it shows of itself. A question that the user may not ask is a finding.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn examine(connection: &Connection, needs: &Needs) -> Result<Shown, Failure> {
    let address = connection.address();
    let mut findings = Vec::new();
    let hello: HashMap<String, Value> = connection.call(&redis::cmd("HELLO")).await?;
    let of_hello = |name: &str| hello.get(name).and_then(|value| String::from_redis_value_ref(value).ok());
    let info = optional(connection.call::<String>(&redis::cmd("INFO")).await)?;
    if info.is_none() {
        findings.push(unread("`INFO`", "+info"));
    }
    let info = info.unwrap_or_default();
    let mut settings = HashMap::new();
    let wanted = needs.memory.map(|_| ["save", "appendfsync"]).into_iter().flatten();
    for name in wanted.chain(needs.settings.iter().copied()) {
        let mut question = redis::cmd("CONFIG");
        question.arg("GET").arg(name);
        let asked = connection.call::<HashMap<String, String>>(&question).await;
        let Some(answer) = optional(asked)? else {
            findings.push(unread("its settings", "+config|get"));
            break;
        };
        settings.extend(answer);
    }
    let clock = clock(connection).await?;
    let ping = redis::cmd("PING");
    let trips = measure(|| connection.call::<Value>(&ping)).await?;
    let program = of_hello("server").unwrap_or_else(|| "redis".to_owned());
    let mut report = ServerReport::new(address.clone())
        .with_version(of_hello("version").map(|version| format!("{program} {version}")))
        .with_role(of_hello("role").map(|role| if role == "master" { "primary".to_owned() } else { role }))
        .with_round_trips(&trips)
        .with_clock(clock);
    for (name, field) in [
        ("maxmemory", "maxmemory_human"),
        ("maxmemory-policy", "maxmemory_policy"),
        ("used memory", "used_memory_human"),
        ("replicas", "connected_slaves"),
    ] {
        report = report.with_fact(name, fitness::field(&info, field));
    }
    let log = fitness::has_log(&info).map(|has_log| if has_log { "yes" } else { "no" });
    report = report.with_fact("appendonly", log);
    let mut shown: Vec<_> = settings.iter().filter(|(_, value)| !value.is_empty()).collect();
    shown.sort();
    for (name, value) in shown {
        report = report.with_fact(name, Some(value));
    }
    // What the log warns of at each connection, and what only an examination looks at.
    let replicas = fitness::field(&info, "connected_slaves").and_then(|count| count.parse().ok());
    let has_replicas = needs.memory.is_some() && replicas.is_some_and(|count| count > 0);
    let alone = !needs.is_confirmed && (needs.may_fail_over || has_replicas);
    let mut faults = fitness::faults(&info, alone);
    faults.extend(fitness::is_nearly_full(&info));
    if let (Some((severity, consequence)), Some(save)) = (needs.memory, settings.get("save")) {
        faults.extend(fitness::forgets(&info, save, severity, consequence));
    }
    findings.extend(faults.into_iter().map(fitness::Fault::finding));
    let findings = findings.into_iter().map(|finding| finding.at(&address)).collect();
    Ok(Shown { report, findings, settings, replicas })
}

/// Returns the finding for something that the server does not show to the user without this right.
fn unread(what: &str, right: &str) -> Finding {
    let message = format!("the server does not show {what} to this user, so that part was not examined");
    let remedy = format!("allow the user of the examination `{right}`, which locks do not need");
    Finding::warning(FindingCode::Unread, message, remedy)
}

/// Returns `None` if the user may not ask, or the server does not know the question.
pub(crate) fn optional<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Failure::Refused(_)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

async fn clock(connection: &Connection) -> Result<Option<ClockOffset>, Failure> {
    let sent = SystemTime::now();
    let time = optional(connection.call::<(u64, u64)>(&redis::cmd("TIME")).await)?;
    let received = SystemTime::now();
    Ok(time.map(|(seconds, micros)| {
        let server = Duration::from_secs(seconds) + Duration::from_micros(micros);
        ClockOffset::between(sent, SystemTime::UNIX_EPOCH + server, received)
    }))
}

/// Returns the finding for an error for which a server cannot be examined.
pub(crate) fn failed(error: &LockError, prefix: &str, severity: Severity) -> Finding {
    let code = error.fault().unwrap_or(FindingCode::Unreachable);
    let remedy = missing_right(error, prefix).map(|right| format!("`ACL SETUSER <user> {right}`"));
    let (message, remedy) = (error.message().to_owned(), remedy.unwrap_or_default());
    match severity {
        Severity::Warning if error.fault().is_none_or(|fault| fault == FindingCode::NoVote) => {
            Finding::warning(code, message, remedy)
        }
        _ => Finding::danger(code, message, remedy),
    }
}
