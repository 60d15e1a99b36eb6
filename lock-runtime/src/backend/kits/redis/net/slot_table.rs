//! The table of a Redis Cluster's hash slots, as one of its servers knows it.

use std::{collections::HashSet, ops::RangeInclusive, sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, ErrorKind, FromRedisValue, RedisError, Value, aio::MultiplexedConnection,
};
use tokio::{
    task::JoinSet,
    time::{timeout, timeout_at},
};

use super::{
    super::{error, slot::SLOTS},
    place::Place,
};
use crate::{LockError, LockErrorKind, sync::lock};

/// Number of servers that are asked for the table at the same time.
const ASKED_AT_ONCE: usize = 3;
/// Time without an answer after which one more server is asked.
const ONE_MORE: Duration = Duration::from_millis(100);
/// Time for which further answers are awaited once a server has answered: a server that was cut off from the others may
/// answer first, with a table of the past.
const GRACE: Duration = Duration::from_millis(50);
/// The same, after the answer of a server that takes no calls or knows less than was known before.
const GRACE_OF_DOUBT: Duration = Duration::from_millis(500);

/// Host and port of a server, as the cluster announces them.
pub(crate) type Address = (String, u16);

/// Which primary has which slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotTable {
    /// Whether the server that answered takes calls.
    is_up: bool,
    /// The largest number of a change of the cluster that this server knows.
    epoch: u64,
    /// The ids of the primaries and of the replicas, by which a cluster is told from another one at the same address.
    primaries: HashSet<String>,
    replicas: HashSet<String>,
    pub(super) ranges: Vec<(RangeInclusive<u16>, Address)>,
    pub(super) at_replicas: HashSet<Address>,
}

impl SlotTable {
    /// Returns whether this table is that of a server that knows more.
    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        let rank = |table: &Self| (table.is_up, table.epoch, table.covered());
        rank(self) > rank(other)
    }

    /// Returns whether the server that answered takes calls, and knows at least as much as this one.
    pub(super) fn is_as_good_as(&self, known: &Self) -> bool {
        self.is_up && self.epoch >= known.epoch
    }

    /// Returns whether the server that answered was cut off from the others before this table was made.
    pub(super) fn is_of_the_past(&self, known: &Self) -> bool {
        !self.is_up && self.epoch < known.epoch
    }

    /// Returns whether this table is that of the cluster whose earlier table is known. A primary of both is enough.
    /// Without one, at least half of the primaries have to be replicas of the earlier table, or at least half of the
    /// earlier primaries have to be replicas now: an operator may have moved a single server to another cluster.
    pub(super) fn is_of_the_same_cluster(&self, known: &Self) -> bool {
        let has_half_of = |those: &HashSet<String>, all: &HashSet<String>| {
            let count = all.intersection(those).count();
            count > 0 && 2 * count >= all.len()
        };
        !self.primaries.is_disjoint(&known.primaries)
            || has_half_of(&known.replicas, &self.primaries)
            || has_half_of(&self.replicas, &known.primaries)
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
        let server = |server: &Value| {
            let Value::Array(server) = server else { return None };
            let [to, port, id, ..] = &server[..] else { return None };
            // A server that does not know its own name means the address at which it was asked.
            let to =
                Option::<String>::from_redis_value_ref(to).ok()?.filter(|to| !to.is_empty() && to != "?");
            let id = String::from_redis_value_ref(id).ok();
            Some((id, (to.unwrap_or_else(|| host.to_owned()), number(port)?)))
        };
        let (mut primaries, mut replicas) = (HashSet::new(), HashSet::new());
        let (mut ranges, mut at_replicas) = (Vec::with_capacity(slots.len()), HashSet::new());
        for entry in slots {
            let [first, last, primary, others @ ..] = &entry[..] else { return None };
            let (first, last) = (number(first)?, number(last)?);
            if usize::from(last) >= SLOTS || first > last {
                return None;
            }
            let (id, address) = server(primary)?;
            primaries.extend(id);
            ranges.push((first..=last, address));
            for (id, address) in others.iter().filter_map(server) {
                replicas.extend(id);
                at_replicas.insert(address);
            }
        }
        let epoch = field("cluster_current_epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or_default();
        let is_up = field("cluster_state") == Some("ok");
        Some(Self { is_up, epoch, primaries, replicas, ranges, at_replicas })
    }
}

/// A question to the servers of a cluster for their table.
pub(super) struct Question {
    /// The last table that was read.
    pub(super) known: Option<SlotTable>,
    /// The addresses of the servers in the URL.
    pub(super) seeds: HashSet<String>,
    /// Upper bound on the wait for the answers.
    pub(super) limit: Duration,
}

impl Question {
    /// Asks some of these servers, in their order, and returns the newest table.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn ask(&self, candidates: Vec<Arc<Place>>) -> Result<SlotTable, LockError> {
        let Self { known, seeds, limit } = self;
        let mut candidates = candidates.into_iter();
        let mut questions = JoinSet::new();
        let mut at_once = ASKED_AT_ONCE;
        let mut best: Option<SlotTable> = None;
        let mut failure: Option<LockError> = None;
        let mut end = tokio::time::Instant::now() + *limit;
        loop {
            while best.is_none()
                && questions.len() < at_once
                && let Some(place) = candidates.next()
            {
                questions.spawn(async move { (place.config().address(), ask(&place).await) });
            }
            let one_more = (tokio::time::Instant::now() + ONE_MORE).min(end);
            let has_more = best.is_none() && candidates.len() > 0;
            match timeout_at(if has_more { one_more } else { end }, questions.join_next()).await {
                // Another cluster may have a server at the address of one that has left this one. What the URL names is
                // this cluster, also after it was set up anew.
                Ok(Some(Ok((from, Ok(table)))))
                    if known.as_ref().is_some_and(|known| !table.is_of_the_same_cluster(known))
                        && !seeds.contains(&from) =>
                {
                    tracing::debug!(from, "the Redis server belongs to another cluster");
                }
                Ok(Some(Ok((_, Ok(table))))) => {
                    // A server that was cut off from the others does not end the question.
                    let is_good = known.as_ref().is_none_or(|known| table.is_as_good_as(known));
                    let grace = if is_good { GRACE } else { GRACE_OF_DOUBT };
                    end = end.min(tokio::time::Instant::now() + grace);
                    if best.as_ref().is_none_or(|best| table.is_newer_than(best)) {
                        best = Some(table);
                    }
                }
                Ok(Some(Ok((_, Err(error))))) => {
                    if failure.as_ref().is_none_or(|known| !known.is_retryable()) {
                        failure = Some(error);
                    }
                }
                Ok(Some(Err(_))) => {}
                Err(_) if has_more && one_more < end => at_once += 1,
                Ok(None) | Err(_) => break,
            }
        }
        if let (Some(known), Some(found)) = (&known, &best)
            && found.is_of_the_past(known)
        {
            return Err(LockError::backend(
                "the servers of the Redis Cluster that answer are cut off from the others",
            ));
        }
        best.ok_or_else(|| {
            failure.unwrap_or_else(|| {
                LockError::backend(format!("no server of the Redis Cluster has answered within {limit:?}"))
            })
        })
    }
}

/// Asks a server for its table.
///
/// # Cancel safety
/// Cancel safe.
async fn ask(place: &Place) -> Result<SlotTable, LockError> {
    let (config, address) = (place.config(), place.config().address());
    let what = "the server of a Redis Cluster";
    let connect = async || place.dial().named(config, AsyncConnectionConfig::new(), what).await;
    let kept = lock(&place.kept).take();
    let is_kept = kept.is_some();
    let mut over = match kept {
        Some(kept) => kept,
        None => connect().await?,
    };
    let limit = config.response_timeout;
    let silent =
        |_| LockError::backend(format!("the Redis server at {address} did not answer within {limit:?}"));
    let mut answers = timeout(limit, questions(&over.0)).await.map_err(silent)?;
    if is_kept && (answers.0.is_err() || answers.1.is_err()) {
        // The server may have closed the connection meanwhile.
        over = connect().await?;
        answers = timeout(limit, questions(&over.0)).await.map_err(silent)?;
    }
    let (info, slots) = answers;
    if info.is_ok() && slots.is_ok() {
        *lock(&place.kept) = Some(over);
    }
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

async fn questions(
    driver: &MultiplexedConnection,
) -> (Result<String, RedisError>, Result<Vec<Vec<Value>>, RedisError>) {
    let (mut of_info, mut of_slots) = (driver.clone(), driver.clone());
    let (mut info, mut slots) = (redis::cmd("CLUSTER"), redis::cmd("CLUSTER"));
    info.arg("INFO");
    slots.arg("SLOTS");
    tokio::join!(info.query_async(&mut of_info), slots.query_async(&mut of_slots))
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
        let id = Value::BulkString(format!("id of {port}").into());
        Value::Array(vec![host, Value::Int(port), id, Value::Array(Vec::new())])
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
    fn a_cluster_is_the_same_after_each_replica_has_taken_the_place_of_its_primary() {
        // Each primary with its replica.
        let table = |shards: &[[i64; 2]]| {
            let shard = |servers: &[i64; 2]| {
                let [first, second] = servers.map(|port| primary(Some("h"), port));
                [range(0, 16_383, first), vec![second]].concat()
            };
            SlotTable::read(INFO, shards.iter().map(shard).collect(), "here").expect("a table")
        };
        let before = table(&[[1, 2], [3, 4], [5, 6]]);
        assert_eq!(before.at_replicas, [2, 4, 6].map(|port| ("h".to_owned(), port)).into());
        for after in
            [&[[2, 1], [4, 3], [6, 5]][..], &[[2, 7], [4, 8]], &[[2, 7], [8, 9]], &[[1, 7], [8, 9], [10, 11]]]
        {
            assert!(table(after).is_of_the_same_cluster(&before), "{after:?}");
        }
        for by_newcomers in [&[[7, 1], [8, 3], [9, 5]][..], &[[7, 1], [8, 3], [9, 10]]] {
            assert!(table(by_newcomers).is_of_the_same_cluster(&before), "{by_newcomers:?}");
        }
        for another in [
            &[[7, 8], [9, 10]][..],
            &[[2, 7], [8, 9], [10, 11]],
            &[[7, 1]],
            &[[7, 1], [8, 9], [10, 11]],
            &[[7, 2], [8, 4]],
        ] {
            assert!(!table(another).is_of_the_same_cluster(&before), "{another:?}");
        }
    }

    #[test]
    fn a_server_that_takes_calls_knows_more_than_one_that_was_cut_off_and_a_later_epoch_more_than_an_earlier()
    {
        let table = |is_up, epoch| SlotTable {
            is_up,
            epoch,
            primaries: HashSet::new(),
            replicas: HashSet::new(),
            ranges: Vec::new(),
            at_replicas: HashSet::new(),
        };
        assert!(table(true, 3).is_newer_than(&table(false, 9)));
        assert!(table(true, 4).is_newer_than(&table(true, 3)));
        assert!(!table(true, 3).is_newer_than(&table(true, 3)));
        let fuller = SlotTable { ranges: vec![(0..=1, ("h".into(), 1))], ..table(true, 3) };
        assert!(fuller.is_newer_than(&table(true, 3)));
        assert!(
            table(true, 4).is_as_good_as(&table(true, 4)) && !table(false, 4).is_as_good_as(&table(true, 4))
        );
        assert!(
            table(false, 3).is_of_the_past(&table(true, 4))
                && !table(true, 3).is_of_the_past(&table(true, 4))
        );
    }
}
