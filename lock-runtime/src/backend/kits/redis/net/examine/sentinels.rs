//! What the Redis Sentinels of a store show of themselves, and what is wrong with their settings.

use std::{collections::HashMap, time::Duration};

use super::super::{server::Server, verdict::majority};
use crate::backend::{Examined, Finding, FindingCode, ServerReport};

/// Number of Sentinels that survive the loss of one.
const ENOUGH: u64 = 3;

/// Asks each Sentinel that names the server for what it shows of the primary.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn examine(server: &Server, ttl: Duration) -> Examined {
    let mut examined = Examined::default();
    let Some(sentinels) = server.sentinels() else { return examined };
    let (name, in_url) = (sentinels.name(), sentinels.all().len());
    let mut away = Vec::new();
    for sentinel in sentinels.all() {
        let address = sentinel.address();
        match sentinel.show(name).await {
            Ok(shown) => {
                let found = judge(&shown, in_url, ttl);
                examined.findings.extend(found.into_iter().map(|finding| finding.at(&address)));
                examined.servers.push(report(&address, &shown));
            }
            Err(error) => away.push((address, error)),
        }
    }
    let is_enough = in_url - away.len() >= majority(in_url);
    for (address, error) in away {
        let remedy = "start the Sentinel, or correct its address in the URL";
        let code = error.fault().unwrap_or(FindingCode::Unreachable);
        let make = if is_enough { Finding::warning } else { Finding::danger };
        examined.findings.push(make(code, error.message().to_owned(), remedy.to_owned()).at(address));
    }
    examined
}

fn report(address: &str, shown: &HashMap<String, String>) -> ServerReport {
    let mut report = ServerReport::new(address).with_role(Some("sentinel".to_owned()));
    for (name, field) in [
        ("primary", "name"),
        ("quorum", "quorum"),
        ("other sentinels", "num-other-sentinels"),
        ("replicas", "num-slaves"),
        ("down-after-milliseconds", "down-after-milliseconds"),
        ("flags", "flags"),
    ] {
        report = report.with_fact(name, shown.get(field).map(String::as_str));
    }
    report
}

/// Returns what is wrong with a Sentinel that shows this.
fn judge(shown: &HashMap<String, String>, in_url: usize, ttl: Duration) -> Vec<Finding> {
    let number = |name: &str| shown.get(name).and_then(|value| value.parse::<u64>().ok());
    let mut found = Vec::new();
    let mut warn = |message: String, remedy: &str| {
        found.push(Finding::warning(FindingCode::Sentinels, message, remedy));
    };
    let known = number("num-other-sentinels").map(|others| others + 1);
    if let Some(known) = known {
        if known < ENOUGH {
            warn(
                format!(
                    "it knows {known} Sentinels with itself, and if one is away, none of them may replace the primary"
                ),
                "run at least three Sentinels on machines of their own",
            );
        }
        if known != in_url as u64 {
            warn(
                format!("it knows {known} Sentinels with itself, and the URL names {in_url}"),
                "name all Sentinels in the URL, and reset those that remember one that is gone (`SENTINEL RESET`)",
            );
        }
    }
    let flags = shown.get("flags").map_or("", String::as_str);
    if ["s_down", "o_down", "failover_in_progress"]
        .iter()
        .any(|bad| flags.split(',').any(|flag| flag == *bad))
    {
        warn(
            format!("it does not reach the primary, or is replacing it ({flags})"),
            "wait for the failover, and examine again",
        );
    }
    if number("num-slaves") == Some(0) {
        warn("it knows no replica that could replace the primary".to_owned(), "add a replica");
    }
    if let Some(after) = number("down-after-milliseconds").map(Duration::from_millis)
        && after * 3 >= ttl * 2
    {
        warn(
            format!(
                "it notices an outage of the primary after {after:?}, when locks with a `ttl` of {ttl:?} that are held are lost"
            ),
            "set a shorter `down-after-milliseconds`, or use a longer `ttl`",
        );
    }
    if let (Some(quorum), Some(known)) = (number("quorum"), known)
        && quorum > known
    {
        let message = format!(
            "its `quorum` is {quorum}, and it knows {known} Sentinels with itself: no primary is ever replaced"
        );
        found.push(Finding::danger(
            FindingCode::Sentinels,
            message,
            "set a `quorum` that the Sentinels can reach",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[(&str, &str)] = &[
        ("num-other-sentinels", "2"),
        ("quorum", "2"),
        ("num-slaves", "1"),
        ("down-after-milliseconds", "5000"),
        ("flags", "master"),
    ];

    fn found(name: &str, value: &str) -> Vec<String> {
        let mut shown: HashMap<_, _> =
            GOOD.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        shown.insert(name.to_owned(), value.to_owned());
        judge(&shown, 3, Duration::from_secs(30)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_fault_of_a_sentinel_is_found_alone() {
        assert_eq!(found("name", "main"), [""; 0]);
        for (name, value, words) in [
            ("num-other-sentinels", "3", "the URL names 3"),
            ("quorum", "4", "danger sentinels: its `quorum` is 4"),
            ("num-slaves", "0", "no replica"),
            ("down-after-milliseconds", "20000", "after 20s"),
            ("flags", "master,o_down", "o_down"),
            ("flags", "master,failover_in_progress", "failover_in_progress"),
        ] {
            let found = found(name, value);
            assert!(found.len() == 1 && found[0].contains(words), "{name} {value}: {found:?}");
        }
        assert!(found("num-other-sentinels", "1")[0].contains("if one is away"));
        assert_eq!(found("down-after-milliseconds", "19999"), [""; 0]);
    }
}
