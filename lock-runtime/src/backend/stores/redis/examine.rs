//! The examination of the servers.

use std::{sync::Arc, time::Duration};

use super::servers::{Again, Node, Servers};
use crate::{
    LockError, LockKey,
    backend::{
        Examination, Examined, Severity,
        kits::redis::{
            error::Failure,
            net::examine::{
                CLUSTER_SETTINGS, NAME, Needs, Shown, examine as examine_server, examine_cluster,
                examine_sentinels, failed,
            },
            slot::Slot,
        },
    },
};

/// # Cancel safety
/// Cancel safe.
pub(super) async fn examine(
    servers: &Arc<Servers>,
    examination: &Examination,
) -> Result<Examined, LockError> {
    let mut examined = Examined::default();
    let prefix = &examination.prefix;
    let is_cluster = servers.is_cluster();
    let all = servers.all().await?;
    for (_, node) in &all {
        match look(node, is_cluster, examination.ttl).await {
            Ok((shown, sentinels)) => {
                examined.servers.push(shown.report);
                examined.findings.extend(shown.findings);
                examined.servers.extend(sentinels.servers);
                examined.findings.extend(sentinels.findings);
            }
            Err(error) if !is_cluster => return Err(error),
            Err(error) => {
                let address = node.connections.server().config().address();
                examined.findings.push(failed(&error, prefix, Severity::Danger).at(address));
            }
        }
    }
    // Each server has users of its own.
    for (number, node) in all {
        let Some(key) = key_at(servers, number, prefix)? else { continue };
        if let Err(error) = check_rights(servers, &key).await {
            // What other errors mean is known from the examination of the servers, and from the trial of the locks.
            if error.fault().is_some() {
                let address = node.connections.server().config().address();
                examined.findings.push(failed(&error, prefix, Severity::Danger).at(address));
            }
        }
    }
    Ok(examined)
}

/// Returns a name under the prefix whose lock is on the server of this number; `None` if no lock under the prefix is there.
fn key_at(servers: &Servers, number: u64, prefix: &str) -> Result<Option<LockKey>, LockError> {
    let key = LockKey::with_prefix(prefix, NAME)?;
    if servers.lane(&key) == number {
        return Ok(Some(key));
    }
    for slot in (0..u16::MAX).map_while(Slot::numbered) {
        let key = LockKey::with_prefix(prefix, &format!("{NAME}:{{{}}}", slot.tag()))?;
        if servers.lane(&key) == number {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

async fn look(node: &Node, is_cluster: bool, ttl: Duration) -> Result<(Shown, Examined), LockError> {
    let line = node.connections.here().await.map_err(Failure::into_error)?;
    let server = node.connections.server();
    let consequence = if server.may_fail_over() {
        "and makes its replicas forget them if it is back before it is replaced: two clients can then hold one lock"
    } else {
        "and two clients can then hold one lock until the first one renews its lease"
    };
    let severity = if server.may_fail_over() { Severity::Danger } else { Severity::Warning };
    let needs = Needs {
        memory: Some((severity, consequence)),
        may_fail_over: server.may_fail_over(),
        is_confirmed: server.config().min_replicas > 0,
        settings: if is_cluster { CLUSTER_SETTINGS } else { &[] },
    };
    let mut shown = examine_server(line.connection(), &needs).await.map_err(Failure::into_error)?;
    if is_cluster {
        let found = examine_cluster(line.connection(), &shown, ttl).await.map_err(Failure::into_error)?;
        shown.findings.extend(found);
    }
    Ok((shown, examine_sentinels(server, ttl).await))
}

/// Checks the rights that locks under the prefix of `key` need, at the server that has this lock.
async fn check_rights(servers: &Arc<Servers>, key: &LockKey) -> Result<(), LockError> {
    let mut route = servers.route(key, Again::IfNotApplied);
    let line = route.line().await.map_err(Failure::into_error)?;
    line.open_channel(key).await.map(drop).map_err(Failure::into_error)
}
