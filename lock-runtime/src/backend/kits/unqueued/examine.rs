//! The examination of the nodes.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use super::{
    node::Node,
    nodes::Nodes,
    protocol::{Kind, Protocol},
    shared::Shared,
};
use crate::{
    LockError, LockKey,
    backend::{
        Examination, Examined, Finding, FindingCode, Severity,
        kits::redis::{
            error::Failure,
            net::{
                Connection, Script,
                examine::{NAME, Needs, Shown, examine as examine_server, failed},
            },
            rights::{no_channels, no_rights},
        },
    },
};

static RIGHTS: LazyLock<Script> = LazyLock::new(|| Script::of(&[include_str!("scripts/rights.lua")]));

/// Examines each node. Fails only if no node can be examined, for no fault of the configuration.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn examine(shared: &Shared, examination: &Examination) -> Result<Examined, LockError> {
    let nodes = &shared.nodes;
    let mut examined = Examined::default();
    let key = LockKey::with_prefix(&examination.prefix, NAME)?;
    let mut without_vote = Vec::new();
    for node in &nodes.of {
        match look(nodes, node, &key).await {
            Ok((shown, refusal)) => {
                examined.servers.push(shown.report);
                examined.findings.extend(shown.findings);
                without_vote.extend(refusal.map(|error| (node, error)));
            }
            Err(error) if nodes.of.len() == 1 => return Err(error),
            Err(error) => without_vote.push((node, error)),
        }
    }
    if examined.servers.is_empty() && without_vote.iter().all(|(_, error)| error.fault().is_none()) {
        let first = without_vote.into_iter().next().map(|(_, error)| error);
        return first.map_or(Ok(examined), Err);
    }
    let severity = match nodes.of.len() - without_vote.len() {
        votes if votes >= nodes.majority() => Severity::Warning,
        _ => Severity::Danger,
    };
    for (node, error) in without_vote {
        examined.findings.push(failed(&error, &examination.prefix, severity).at(node.service().address()));
    }
    Ok(examined)
}

/// Returns what the node shows, and why it has no vote, if it has none.
async fn look(
    nodes: &Nodes,
    node: &Arc<Node>,
    key: &LockKey,
) -> Result<(Shown, Option<LockError>), LockError> {
    let line = node.here().await.map_err(Failure::into_error)?;
    let memory = nodes.protocol.if_forgotten();
    let needs = Needs { memory, may_fail_over: false, is_confirmed: false, settings: &[] };
    let mut shown = examine_server(&line.connection, &needs).await.map_err(Failure::into_error)?;
    let service = node.service();
    if let Err(error) = check_rights(&line.connection, &*nodes.protocol, key).await {
        let mut found = failed(&error, key.prefix(), Severity::Danger);
        if !nodes.protocol.channel(key).starts_with(key.prefix()) && found.remedy.contains('~') {
            // The names of its keys do not all begin with the prefix.
            found.remedy = "extend the user's ACL by the names of keys on the page of the store".into();
        }
        shown.findings.push(found.at(service.address()));
    }
    let refusal = service.lacks_vote(&line);
    if refusal.is_none()
        && let Some(warning) = service.warning(&line)
    {
        shown.findings.push(Finding::warning(FindingCode::Unread, warning, "").at(service.address()));
    }
    Ok((shown, refusal))
}

/// Checks the rights that locks under the prefix of the key need.
async fn check_rights(
    connection: &Connection,
    protocol: &dyn Protocol,
    key: &LockKey,
) -> Result<(), LockError> {
    let scripts = Kind::ALL.iter().filter_map(|kind| protocol.script(*kind));
    // Locks do without the right to `PUBSUB NUMSUB`.
    let commands = scripts.flat_map(Script::commands).filter(|command| *command != "PUBSUB");
    let commands: BTreeSet<_> = commands.chain(["SUBSCRIBE"]).collect();
    let mut call = RIGHTS.call_with_room(2, 6 + commands.len(), 512);
    call.arg(key.stored());
    protocol.write_counter(&mut call, key);
    let channel = protocol.channel(key);
    call.arg(&channel).arg(&commands);
    let refused: Vec<String> = connection.run(&RIGHTS, &call).await.map_err(Failure::into_error)?;
    if ["PUBLISH", "SUBSCRIBE"].iter().all(|command| refused.iter().any(|refused| refused == command)) {
        let beginning = match key.prefix() {
            prefix if !prefix.is_empty() && channel.starts_with(prefix) => prefix,
            _ => channel.split(NAME).next().unwrap_or_default(),
        };
        return Err(no_channels(beginning, key.prefix()));
    }
    if refused.is_empty() { Ok(()) } else { Err(no_rights(&refused, key.prefix())) }
}
