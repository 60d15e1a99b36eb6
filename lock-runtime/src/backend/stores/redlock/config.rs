use std::time::Duration;

use crate::{
    LockError,
    backend::{
        common::{
            parts::Parts,
            settings::{Settings, invalid},
        },
        kits::{
            redis::config::{Config as NodeConfig, check_credentials},
            unqueued::FleetSettings,
        },
    },
};

const SETTINGS: Settings = Settings {
    store: "Redlock",
    known: &["connect_timeout", "durable", "max_ttl", "node_timeout", "strict"],
    longest: Duration::from_secs(24 * 60 * 60),
};
const SCHEME: &str = "redlock://";
/// Upper bound on the wait for a node's answer, unless the URL sets another.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);

/// Reads `redlock://[user:password@]host[:port],host[:port],host[:port][/db][?setting=value&…]`.
pub(super) fn from_url(url: &str) -> Result<(Vec<NodeConfig>, FleetSettings), LockError> {
    let rest = url.strip_prefix(SCHEME).ok_or_else(|| {
        invalid("the Redlock URL is not understood: write `redlock://host:6379,host:6379,host:6379`".into())
    })?;
    if ["redis:", "rediss:", "redis+unix:"].iter().any(|nested| rest.starts_with(nested)) {
        return Err(invalid(
            "the Redlock URL is not understood: it has other URLs in it; write the hosts alone, \
             `redlock://host:6379,host:6379,host:6379`, or give the URLs of the nodes to `Redlock::new`"
                .into(),
        ));
    }
    let Parts { credentials, hosts, path: db, query } = Parts::of(rest, SETTINGS.store)?;
    check_credentials(credentials, SETTINGS.store, "redlock")?;
    let credentials = credentials.map_or_else(String::new, |credentials| format!("{credentials}@"));
    let mut rules = FleetSettings::default();
    let (mut node_timeout, mut connect_timeout, mut strict) = (NODE_TIMEOUT, None, None);
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "node_timeout" => node_timeout = SETTINGS.length(&name, &value)?,
            "connect_timeout" => connect_timeout = Some(SETTINGS.length(&name, &value)?),
            "max_ttl" => rules.max_ttl = SETTINGS.length(&name, &value)?,
            "durable" => rules.durable = SETTINGS.switch(&name, &value)?,
            "strict" => strict = Some(SETTINGS.switch(&name, &value)?),
            _ => return Err(SETTINGS.unknown(&name, query)),
        }
    }
    let nodes = hosts.split(',').map(|server| {
        let mut node = NodeConfig::from_url(&format!("redis://{credentials}{server}{db}"))?;
        node.response_timeout = node_timeout;
        node.connect_timeout = connect_timeout.unwrap_or(node.connect_timeout);
        node.strict = strict.unwrap_or(node.strict);
        Ok(node)
    });
    Ok((nodes.collect::<Result<_, LockError>>()?, rules))
}

/// Reads the URLs of the nodes, each with its own settings.
pub(super) fn from_urls<S: AsRef<str>>(
    urls: impl IntoIterator<Item = S>,
) -> Result<Vec<NodeConfig>, LockError> {
    urls.into_iter().map(|url| NodeConfig::from_url(url.as_ref())).collect()
}

/// Refuses a useless number of nodes, and an address that is named twice.
pub(super) fn check(nodes: &[NodeConfig]) -> Result<(), LockError> {
    let refuse = |problem: String| Err(invalid(format!("the Redlock URL names {problem}")));
    match nodes.len() {
        1 => return refuse("one node, which is no quorum: for one Redis write `redis://host:6379`".into()),
        count if count < 3 => {
            return refuse(format!("{count} nodes, of which none may fail: use three, or one with `redis:`"));
        }
        count if count % 2 == 0 => {
            return refuse(format!(
                "{count} nodes, of which no more may fail than of {}: use an odd number",
                count - 1
            ));
        }
        count if count > 63 => return refuse(format!("{count} nodes: use at most 63, usually 3 or 5")),
        _ => {}
    }
    for (number, node) in nodes.iter().enumerate() {
        // Two databases of one server fail together.
        if nodes[..number].iter().any(|other| other.store().0 == node.store().0) {
            return refuse(format!("{} twice: each node must be a server of its own", node.address()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockErrorKind;

    fn read(url: &str) -> Result<(Vec<NodeConfig>, FleetSettings), LockError> {
        let (nodes, rules) = from_url(url)?;
        check(&nodes)?;
        Ok((nodes, rules))
    }

    #[test]
    fn nodes_share_credentials_database_and_settings() {
        let (nodes, rules) =
            read("redlock://u:p%40ss@a,b:7000,[::1]:7001/2?node_timeout=80ms&max_ttl=5s&durable=true")
                .expect("valid");
        let addresses: Vec<_> = nodes.iter().map(NodeConfig::address).collect();
        assert_eq!(addresses, ["a:6379", "b:7000", "::1:7001"]);
        for node in &nodes {
            let settings = node.info.redis_settings();
            assert_eq!(
                (settings.db(), settings.username(), settings.password()),
                (2, Some("u"), Some("p@ss"))
            );
            assert_eq!(node.response_timeout, Duration::from_millis(80));
        }
        assert!(rules.durable && rules.max_ttl == Duration::from_secs(5));
        assert!(!read("redlock://a,b,c").expect("valid").1.durable);
    }

    #[test]
    fn mistakes_are_named_and_the_password_is_not() {
        for (url, word) in [
            ("redlock:a,b,c", "write `redlock://"),
            ("redlock://u:canary@a", "write `redis://"),
            ("redlock://canary@a,b,c", "no password; write `redlock://user:password@"),
            ("redlock://u:12?canary@a,b,c", "`%3F`"),
            ("redlock://u:1/canary@a,b,c", "`%2F`"),
            ("redlock://u:1#canary@a,b,c", "`%23`"),
            ("redlock://redis://u:canary@a,redis://b,redis://c", "the hosts alone"),
            ("redlock://u:canary@a,b", "none may fail"),
            ("redlock://u:canary@a,b,c,d", "an odd number"),
            ("redlock://u:canary@a,b,A:6379", "twice"),
            ("redlock://u:canary@a,,c", "not understood"),
            ("redlock://u:canary@a,b,c:port", "not understood"),
            ("redlock://u:canary@a,b,c/x", "not understood"),
            ("redlock://u:canary@a,b,c?max_ttl=0s", "above zero"),
            ("redlock://u:canary@a,b,c?durable=yes", "durable=true"),
            ("redlock://u:canary@a,b,c?response_timeout=1s", "`node_timeout`"),
        ] {
            let error = read(url).map(drop).expect_err(url);
            assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
            assert!(error.to_string().contains(word), "{url}: {error}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }
}
