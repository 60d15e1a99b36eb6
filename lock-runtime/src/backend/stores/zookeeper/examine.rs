//! What the servers of an ensemble say of themselves, and what of it would bite the users of locks.

use std::{sync::Arc, time::Duration};

use ::zookeeper_client as zk;

use super::{
    config::Config,
    error::Failure,
    session::Session,
    sessions::Sessions,
    tls::Certificates,
    words::{self, Answer, Said},
};
use crate::{
    LockError, OwnerToken,
    backend::{
        Examined, Finding,
        FindingCode::{Ensemble, ReadOnly, Rights, Tick, Unread, Version},
        ServerReport,
        common::link::Link,
        measure,
    },
};

/// The oldest version that has container nodes.
const OLDEST: [u32; 3] = [3, 5, 3];
/// Number of ticks that a session has to last at least, so that a leader may stall at all.
const LEAST_TICKS: u32 = 3;
/// How servers that limit session timeouts say so.
const LIMITS: [&str; 2] = ["minSessionTimeout", "maxSessionTimeout"];

/// A server, and what it says of itself.
struct Member {
    server: String,
    said: Said,
}

pub(super) async fn examine(link: &Arc<Link<Sessions>>) -> Result<Examined, LockError> {
    let session = link.session().await?;
    session.answering().await.map_err(Failure::into_error)?;
    let config = &link.sessions().config;
    let trips = measure(|| session.answer(session.write_barrier())).await;
    let trips = trips.map_err(|error| Failure::of(error).into_error())?;

    let (mut servers, mut findings) = (Vec::new(), Vec::new());
    let ours = ServerReport::new(&config.servers)
        .with_fact("session_timeout", Some(format!("{:?}", session.timeout())))
        .with_round_trips(&trips);
    let voters = voters(&session).await;
    let members = members(config).await?;
    findings.extend(members.iter().flat_map(of_member));
    findings.extend(of_ensemble(&members, voters));
    findings.extend(of_session(&members, config.session_timeout, session.timeout()));
    if let [alone] = &members[..] {
        servers.push(described(ours, &alone.said));
    } else {
        servers.push(ours);
        let reports = members.iter().map(|member| described(ServerReport::new(&member.server), &member.said));
        servers.extend(reports);
    }
    findings.extend(of_rights(&session, config).await?);
    Ok(Examined { servers, findings })
}

async fn members(config: &Config) -> Result<Vec<Member>, LockError> {
    let certificates = match &config.tls {
        Some(tls) => Some(Arc::new(Certificates::read(tls).await?)),
        None => None,
    };
    // All servers are asked at once; each answer has a time limit.
    let ask = |(server, (host, port)): (&str, (&str, u16))| {
        let asked = words::ask(host.to_owned(), port, certificates.clone());
        (server.to_owned(), tokio::spawn(asked))
    };
    let asked: Vec<_> = config.servers.split(',').zip(config.hosts()).map(ask).collect();
    let mut members = Vec::new();
    for (server, said) in asked {
        members.extend(said.await.ok().map(|said| Member { server, said }));
    }
    Ok(members)
}

/// Returns the number of servers that vote, by the configuration that each client may read; `None` for a single server.
async fn voters(session: &Session) -> Option<usize> {
    let (config, _) = session.answer(session.client.get_config()).await.ok()?;
    let config = String::from_utf8_lossy(&config);
    let votes = |line: &&str| line.starts_with("server.") && !line.contains(":observer");
    Some(config.lines().filter(votes).count()).filter(|count| *count > 0)
}

fn described(report: ServerReport, said: &Said) -> ServerReport {
    let fact = |report: ServerReport, name: &str| {
        let value = said.setting(name).map(|value| value.to_string());
        report.with_fact(name, value)
    };
    let report = report
        .with_version(said.version().map(|version| format!("ZooKeeper {version}")))
        .with_role(said.state("Mode").map(str::to_owned))
        .with_fact("connections", said.state("Connections"));
    // The lengths are in ms, and `syncLimit` in ticks, as in the configuration file.
    ["tickTime", LIMITS[0], LIMITS[1], "syncLimit", "maxClientCnxns"].into_iter().fold(report, fact)
}

fn of_member(Member { server, said }: &Member) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &said.state {
        Answer::Text(_) | Answer::Forbidden => {}
        Answer::Silence => {
            let remedy = "start it, or check its address, its port and the firewall";
            findings.push(Finding::warning(Ensemble, "the server does not answer", remedy));
        }
        Answer::NotServing => {
            let message =
                "the server runs, and does not serve clients: it does not see a majority of the others";
            findings.push(Finding::warning(
                Ensemble,
                message,
                "check the servers of the ensemble, and the network between them",
            ));
        }
    }
    let forbidden: Vec<_> = [("srvr", &said.state), ("conf", &said.settings), ("mntr", &said.figures)]
        .into_iter()
        .filter(|(_, answer)| **answer == Answer::Forbidden)
        .map(|(word, _)| word)
        .collect();
    if !forbidden.is_empty() {
        let words = forbidden.join(", ");
        let message =
            format!("the server may not answer {words}, so a part of its state and settings is not known");
        let remedy = "add `4lw.commands.whitelist=srvr,conf,mntr` to its configuration";
        findings.push(Finding::warning(Unread, message, remedy));
    }
    if said.state("Mode") == Some("read-only") {
        let message = "the server does not see a majority of the others, and serves only reads";
        let remedy = "check the servers of the ensemble, and the network between them";
        findings.push(Finding::warning(ReadOnly, message, remedy));
    }
    if let Some(version) = said.version()
        && is_too_old(version)
    {
        let [major, minor, patch] = OLDEST;
        let message = format!("ZooKeeper {version} is too old: version {major}.{minor}.{patch} is needed");
        findings.push(Finding::danger(Version, message, "upgrade the server"));
    }
    findings.into_iter().map(|finding| finding.at(server)).collect()
}

/// Returns whether a version is older than the oldest that can be used; a text that is no version is not.
fn is_too_old(version: &str) -> bool {
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
    let version = [(); 3].map(|()| numbers.next().flatten());
    version[0].is_some() && version < OLDEST.map(Some)
}

/// Compares the number of voters with that of the followers that the leader knows: members that the URL does not name.
fn of_ensemble(members: &[Member], voters: Option<usize>) -> Option<Finding> {
    let leader = members.iter().find(|member| member.said.state("Mode") == Some("leader"))?;
    let voters = u64::try_from(voters?).ok()?;
    let in_step = leader.said.figure("zk_synced_followers")? + 1;
    // Of a server that the URL names, the finding is its own.
    let is_named =
        members.iter().any(|member| matches!(member.said.state, Answer::Silence | Answer::NotServing));
    (in_step < voters && !is_named).then(|| {
        let message = format!(
            "{in_step} of the {voters} servers of the ensemble that vote are in step with the leader"
        );
        let remedy = "find the others in the configuration (`server.…`), and start them";
        Finding::warning(Ensemble, message, remedy).at(&leader.server)
    })
}

/// Compares the session timeout that was asked for with the one that was granted, and with the servers' settings.
fn of_session(members: &[Member], asked: Duration, granted: Duration) -> Vec<Finding> {
    let mut findings = Vec::new();
    let remedy = "set `tickTime`, `minSessionTimeout` and `maxSessionTimeout` of all servers so that they allow the \
                  timeout, or ask for another one (`session_timeout` in the URL)";
    if granted != asked {
        let follows = if granted > asked {
            "so a lock whose holder has crashed stays taken for longer"
        } else {
            "so locks survive only shorter outages"
        };
        let message = format!(
            "sessions have a timeout of {granted:?} instead of {asked:?}, by the servers' limits, {follows}"
        );
        findings.push(Finding::warning(Tick, message, remedy));
    }
    for Member { server, said } in members {
        if let Some(tick) = said.length("tickTime")
            && granted < tick * LEAST_TICKS
        {
            let message = format!(
                "a session timeout of {granted:?} is less than {LEAST_TICKS} ticks of {tick:?}: if the leader stalls for a \
                 moment, a lock may be granted again before its holder stops"
            );
            findings.push(Finding::danger(Tick, message, remedy).at(server));
        }
    }
    let limited = members.iter().filter_map(|member| {
        let [least, most] = LIMITS.map(|name| member.said.length(name));
        Some((member, asked.min(most?).max(least?)))
    });
    let limited: Vec<_> = limited.collect();
    if let [(first, of_first), rest @ ..] = &limited[..]
        && let Some((other, of_other)) = rest.iter().find(|(_, timeout)| timeout != of_first)
    {
        let message = format!(
            "`{}` grants a session timeout of {of_first:?}, and `{}` one of {of_other:?}: a session that moves to another \
             server may lose its locks before their holders stop",
            first.server, other.server
        );
        findings.push(Finding::danger(
            Tick,
            message,
            "give all servers the same `tickTime`, `minSessionTimeout` and `maxSessionTimeout`",
        ));
    }
    findings
}

/// Finds out which permissions on the chroot are missing. Nothing is changed, because the last part of the request fails.
async fn of_rights(session: &Session, config: &Config) -> Result<Vec<Finding>, LockError> {
    let client = &session.client;
    let node = format!("/lock-examined-{:016x}", OwnerToken::random().expose() >> 64);
    let failed = |error| Failure::of(error).into_error();
    let options = zk::CreateMode::Persistent.with_acls(config.acls());
    let [of_creation, of_deletion, of_the_end] = [0, 1, 2];
    let mut request = client.new_multi_writer();
    request.add_create(&node, b"", &options).map_err(failed)?;
    request.add_delete(&node, None).map_err(failed)?;
    request.add_delete(&node, None).map_err(failed)?;
    let place = config.chroot.as_deref().unwrap_or("/");
    let missing = |right: &str, follows: &str| {
        let message = format!("the user of this client lacks the permission {right} on `{place}`, {follows}");
        let remedy = format!("give it to the user (`setAcl {place} …` in zkCli.sh)");
        (message, remedy)
    };
    let mut findings = Vec::new();
    let answer = session.answer(async { Ok(request.commit().await) }).await.map_err(failed)?;
    match answer {
        Err(zk::MultiWriteError::OperationFailed { index, .. }) if index == of_the_end => {}
        Err(zk::MultiWriteError::OperationFailed { index, source: zk::Error::NoAuth })
            if index == of_creation =>
        {
            let (message, remedy) =
                missing("`c` (create)", "so locks that are not there yet cannot be acquired");
            findings.push(Finding::danger(Rights, message, remedy));
        }
        Err(zk::MultiWriteError::OperationFailed { index, source: zk::Error::NoAuth })
            if index == of_deletion =>
        {
            let (message, remedy) =
                missing("`d` (delete)", "so a lock whose sequence numbers are used up cannot be made anew");
            findings.push(Finding::warning(Rights, message, remedy));
        }
        Err(error) => return Err(failed(error.into())),
        Ok(_) => {}
    }
    match session.answer(client.get_data("/")).await {
        Err(zk::Error::NoAuth) => {
            let (message, remedy) = missing("`r` (read)", "so operators cannot list the locks");
            findings.push(Finding::warning(Rights, message, remedy));
        }
        read => drop(read.map_err(failed)?),
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::{super::words::tests::said, *};
    use crate::backend::{FindingCode, Severity};

    const SECOND: Duration = Duration::from_secs(1);

    fn member(mode: &str, settings: &str, figures: &str) -> Member {
        Member { server: "h:1".into(), said: said(mode, settings, figures) }
    }

    fn codes(findings: impl IntoIterator<Item = Finding>) -> Vec<(FindingCode, Severity)> {
        findings.into_iter().map(|finding| (finding.code, finding.severity)).collect()
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for (version, is_old) in [
            ("3.4.14", true),
            ("3.5.2", true),
            ("3.5.3", false),
            ("3.10.0", false),
            ("4.0", false),
            ("", false),
        ] {
            assert_eq!(is_too_old(version), is_old, "{version}");
        }
    }

    #[test]
    fn a_member_that_serves_has_no_findings() {
        for mode in ["leader", "follower", "observer", "standalone"] {
            assert_eq!(codes(of_member(&member(mode, "", ""))), [], "{mode}");
        }
        assert_eq!(codes(of_member(&member("read-only", "", ""))), [(ReadOnly, Severity::Warning)]);
        let mut old = member("leader", "", "");
        old.said.state = Answer::Text("Zookeeper version: 3.4.9-1, built on 2017\nMode: leader".into());
        assert_eq!(codes(of_member(&old)), [(Version, Severity::Danger)]);
    }

    #[test]
    fn a_member_that_the_url_does_not_name_is_missed() {
        let of = |figures: &str, voters| codes(of_ensemble(&[member("leader", "", figures)], voters));
        assert_eq!(of("zk_synced_followers\t2", Some(3)), []);
        assert_eq!(of("zk_synced_followers\t1", Some(3)), [(Ensemble, Severity::Warning)]);
        assert_eq!(of("zk_synced_followers\t1", None), []);
    }

    #[test]
    fn a_session_that_is_too_short_for_the_tick_is_a_danger() {
        let members = [member("standalone", "tickTime=2000", "")];
        for (seconds, expected) in [(6, vec![]), (5, vec![(Tick, Severity::Danger)])] {
            assert_eq!(
                codes(of_session(&members, SECOND * seconds, SECOND * seconds)),
                expected,
                "{seconds}"
            );
        }
        for (asked, granted) in [(1, 6), (60, 40)] {
            let found = codes(of_session(&members, SECOND * asked, SECOND * granted));
            assert_eq!(found, [(Tick, Severity::Warning)]);
        }
    }

    #[test]
    fn servers_that_grant_different_timeouts_are_a_danger() {
        let limited = |least, most| {
            member("follower", &format!("minSessionTimeout={least}\nmaxSessionTimeout={most}"), "")
        };
        let found = |others| codes(of_session(&[limited(4_000, 40_000), others], SECOND * 10, SECOND * 10));
        assert_eq!(found(limited(2_000, 20_000)), [], "both grant what is asked for");
        assert_eq!(found(limited(12_000, 40_000)), [(Tick, Severity::Danger)]);
        assert_eq!(found(limited(1_000, 9_000)), [(Tick, Severity::Danger)]);
    }
}
