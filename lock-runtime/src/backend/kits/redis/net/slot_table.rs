//! The table of a Redis Cluster's hash slots, as one of its servers knows it.

use std::ops::RangeInclusive;

use redis::{AsyncConnectionConfig, ErrorKind, FromRedisValue, RedisError, Value};
use tokio::time::timeout;

use super::{
    super::{error, slot::SLOTS},
    place::Place,
};
use crate::{LockError, LockErrorKind};

/// Host and port of a server, as the cluster announces them.
pub(crate) type Address = (String, u16);

/// Which primary has which slots.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlotTable {
    /// Whether the server that answered takes calls.
    is_up: bool,
    /// The largest number of a change of the cluster that this server knows.
    epoch: u64,
    pub(super) ranges: Vec<(RangeInclusive<u16>, Address)>,
}

impl SlotTable {
    /// Returns whether this table is that of a server that knows more.
    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        let rank = |table: &Self| (table.is_up, table.epoch, table.covered());
        rank(self) > rank(other)
    }

    fn covered(&self) -> usize {
        self.ranges.iter().map(|(range, _)| range.len()).sum()
    }

    /// Reads the answers to `CLUSTER INFO` and `CLUSTER SLOTS` of the server at `host`.
    fn read(info: &str, slots: Vec<Vec<Value>>, host: &str) -> Option<Self> {
        let field = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let number = |value: &Value| u16::from_redis_value_ref(value).ok();
        let mut ranges = Vec::with_capacity(slots.len());
        for entry in slots {
            let [first, last, primary, ..] = &entry[..] else { return None };
            let (first, last) = (number(first)?, number(last)?);
            let Value::Array(primary) = primary else { return None };
            let [to, port, ..] = &primary[..] else { return None };
            // A server that does not know its own name means the address at which it was asked.
            let to =
                Option::<String>::from_redis_value_ref(to).ok()?.filter(|to| !to.is_empty() && to != "?");
            let to = to.unwrap_or_else(|| host.to_owned());
            if usize::from(last) >= SLOTS || first > last {
                return None;
            }
            ranges.push((first..=last, (to, number(port)?)));
        }
        let epoch = field("cluster_current_epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or_default();
        Some(Self { is_up: field("cluster_state") == Some("ok"), epoch, ranges })
    }
}

/// Asks a server for its table.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn ask(place: &Place) -> Result<SlotTable, LockError> {
    let (config, address) = (place.config(), place.config().address());
    let what = "the server of a Redis Cluster";
    let (driver, _task) = place.dial().named(config, AsyncConnectionConfig::new(), what).await?;
    let (mut of_info, mut of_slots) = (driver.clone(), driver);
    let (mut info, mut slots) = (redis::cmd("CLUSTER"), redis::cmd("CLUSTER"));
    info.arg("INFO");
    slots.arg("SLOTS");
    let asked = async {
        tokio::join!(
            info.query_async::<String>(&mut of_info),
            slots.query_async::<Vec<Vec<Value>>>(&mut of_slots)
        )
    };
    let limit = config.response_timeout;
    let (info, slots) = timeout(limit, asked).await.map_err(|_| {
        LockError::backend(format!("the Redis server at {address} did not answer within {limit:?}"))
    })?;
    let explained = |error| explain(error, &address);
    let host = config.host_and_port().map_or("", |(host, _)| host);
    let table = SlotTable::read(&info.map_err(explained)?, slots.map_err(explained)?, host);
    match table {
        Some(table) if table.ranges.is_empty() => Err(LockError::backend(format!(
            "the Redis server at {address} knows no server with hash slots; is the cluster set up?"
        ))),
        Some(table) => Ok(table),
        None => Err(error::unexpected("`CLUSTER SLOTS`")),
    }
}

fn explain(error: RedisError, address: &str) -> LockError {
    let detail = error.detail().unwrap_or_default();
    if detail.contains("cluster support disabled") || detail.contains("unknown command") {
        let message = format!(
            "the server at {address} is no node of a Redis Cluster (`cluster-enabled` is off); write `redis://{address}`"
        );
        return LockError::new(LockErrorKind::Unsupported, message);
    }
    if error.code() == Some("NOPERM") {
        let message = format!(
            "the Redis user may not ask the server at {address} for the hash slots; extend its ACL: `+cluster|slots \
             +cluster|info`"
        );
        return LockError::backend(message).into_permanent().with_source(error);
    }
    let is_io = error.kind() == ErrorKind::Io;
    let error = error::explain(error);
    if is_io {
        error
    } else {
        let message = format!("Redis at {address}: {}", error.message());
        error.saying(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(host: Option<&str>, port: i64) -> Value {
        let host = host.map_or(Value::Nil, |host| Value::BulkString(host.into()));
        Value::Array(vec![host, Value::Int(port), Value::BulkString("id".into()), Value::Array(Vec::new())])
    }

    fn range(first: i64, last: i64, primary: Value) -> Vec<Value> {
        vec![Value::Int(first), Value::Int(last), primary]
    }

    const INFO: &str = "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_current_epoch:6\r\n";

    #[test]
    fn servers_are_named_by_host_or_by_the_connection() {
        let slots = vec![
            range(0, 5_460, primary(Some("10.0.0.1"), 7_000)),
            range(5_461, 5_461, primary(None, 7_001)),
            range(5_462, 16_383, primary(Some(""), 7_002)),
        ];
        let table = SlotTable::read(INFO, slots, "here").expect("a table");
        let named: Vec<_> =
            table.ranges.iter().map(|(range, to)| (range.len(), to.0.as_str(), to.1)).collect();
        assert_eq!(named, [(5_461, "10.0.0.1", 7_000), (1, "here", 7_001), (10_922, "here", 7_002)]);
        assert_eq!((table.is_up, table.epoch, table.covered()), (true, 6, SLOTS));
        for wrong in [range(0, 16_384, primary(None, 1)), range(5, 4, primary(None, 1)), vec![Value::Int(1)]]
        {
            assert_eq!(SlotTable::read(INFO, vec![wrong], "here"), None);
        }
    }

    #[test]
    fn a_server_that_takes_calls_knows_more_than_one_that_was_cut_off_and_a_later_epoch_more_than_an_earlier()
    {
        let table = |is_up, epoch| SlotTable { is_up, epoch, ranges: Vec::new() };
        assert!(table(true, 3).is_newer_than(&table(false, 9)));
        assert!(table(true, 4).is_newer_than(&table(true, 3)));
        assert!(!table(true, 3).is_newer_than(&table(true, 3)));
        let fuller = SlotTable { is_up: true, epoch: 3, ranges: vec![(0..=1, ("h".into(), 1))] };
        assert!(fuller.is_newer_than(&table(true, 3)));
    }
}
