//! What the servers of a Redis Cluster show of the cluster.

use std::{collections::HashMap, time::Duration};

use super::{
    super::{super::error::Failure, connection::Connection},
    Shown, optional, unread,
};
use crate::backend::{Finding, FindingCode, kits::redis::slot::SLOTS};

/// The settings of a server that matter here.
pub(crate) const SETTINGS: &[&str] = &["cluster-node-timeout", "cluster-require-full-coverage"];

/// Asks a server for what it shows of its cluster.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn examine(
    connection: &Connection,
    shown: &Shown,
    ttl: Duration,
) -> Result<Vec<Finding>, Failure> {
    let info = optional(connection.call::<String>(redis::cmd("CLUSTER").arg("INFO")).await)?;
    let Some(info) = info else {
        return Ok(vec![unread("`CLUSTER INFO`", "+cluster|info").at(&shown.report.server)]);
    };
    let info = info.lines().filter_map(|line| line.trim().split_once(':')).collect();
    let found = judge(&info, &shown.settings, shown.replicas, ttl);
    Ok(found.into_iter().map(|finding| finding.at(&shown.report.server)).collect())
}

fn judge(
    info: &HashMap<&str, &str>,
    settings: &HashMap<String, String>,
    replicas: Option<u64>,
    ttl: Duration,
) -> Vec<Finding> {
    let number = |name: &str| info.get(name).and_then(|value| value.parse::<usize>().ok());
    let mut found = Vec::new();
    if info.get("cluster_state").is_some_and(|state| *state != "ok") {
        let message = "it takes no calls (`cluster_state` in `CLUSTER INFO`)";
        found.push(Finding::danger(FindingCode::Cluster, message, "`redis-cli --cluster check` says why"));
    }
    if let Some(assigned) = number("cluster_slots_assigned")
        && assigned < SLOTS
    {
        let message = format!(
            "{} of {SLOTS} hash slots have no server, and no lock with such a slot is granted",
            SLOTS - assigned
        );
        found.push(Finding::danger(FindingCode::Cluster, message, "`redis-cli --cluster fix` assigns them"));
    }
    if let (Some(failed), Some(suspected)) = (number("cluster_slots_fail"), number("cluster_slots_pfail"))
        && failed + suspected > 0
    {
        let message = format!("the servers of {} hash slots cannot be reached", failed + suspected);
        found.push(Finding::danger(
            FindingCode::Cluster,
            message,
            "`redis-cli --cluster check` names the servers",
        ));
    }
    if let Some(primaries @ 1..3) = number("cluster_size") {
        let message =
            format!("the cluster has {primaries} primaries with slots, too few to replace one that fails");
        found.push(Finding::warning(FindingCode::Cluster, message, "use at least three primaries"));
    }
    if replicas == Some(0) {
        let message =
            "it has no replica: while it is away, no lock with its hash slots is granted or renewed";
        found.push(Finding::warning(FindingCode::Cluster, message, "add a replica to each primary"));
    }
    let timeout = settings.get("cluster-node-timeout").and_then(|millis| millis.parse().ok());
    if let Some(timeout) = timeout.map(Duration::from_millis)
        && timeout * 3 >= ttl * 2
    {
        let message = format!(
            "an outage of a server is noticed after {timeout:?} (`cluster-node-timeout`), when locks with a `ttl` of {ttl:?} that are held \
             are lost"
        );
        let remedy = "set a shorter `cluster-node-timeout`, or use a longer `ttl`";
        found.push(Finding::warning(FindingCode::Cluster, message, remedy));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[(&str, &str)] = &[
        ("cluster_state", "ok"),
        ("cluster_slots_assigned", "16384"),
        ("cluster_slots_pfail", "0"),
        ("cluster_slots_fail", "0"),
        ("cluster_size", "3"),
    ];

    fn found(name: &str, value: &str) -> Vec<String> {
        let mut info: HashMap<_, _> = GOOD.iter().copied().collect();
        info.insert(name, value);
        let timeout = if name == "timeout" { value } else { "1000" };
        let settings = [("cluster-node-timeout".to_owned(), timeout.to_owned())].into_iter().collect();
        let replicas = u64::from(name != "replicas");
        let found = judge(&info, &settings, Some(replicas), Duration::from_secs(30));
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_fault_of_a_cluster_is_found_alone() {
        assert_eq!(found("cluster_state", "ok"), [""; 0]);
        for (name, value, words) in [
            ("cluster_state", "fail", "danger cluster: it takes no calls"),
            ("cluster_slots_assigned", "16380", "danger cluster: 4 of 16384"),
            ("cluster_slots_pfail", "5", "danger cluster: the servers of 5"),
            ("cluster_size", "2", "2 primaries"),
            ("replicas", "0", "no replica"),
            ("timeout", "20000", "after 20s"),
        ] {
            let found = found(name, value);
            assert!(found.len() == 1 && found[0].contains(words), "{name}: {found:?}");
        }
        assert_eq!(found("timeout", "19999"), [""; 0]);
    }
}
