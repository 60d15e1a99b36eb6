//! The marks of periods: two persistent nodes for each job, one for its even periods and one for its odd periods.
//!
//! The data of a node are `1:<period>:<owner>`, or `1:<period>:` once the mark is removed. Each change names the version of
//! the node that it replaces, so that of two changes only one is applied, and one that the servers carry out late is not
//! applied at all. Therefore a removal changes the node in any case, even if the node does not have the mark yet: the
//! request that was to set the mark may still be under way.

use std::time::{Duration, SystemTime};

use ::zookeeper_client as zk;

use super::{ZooKeeper, error::Failure, names, session::Session};
use crate::{
    LockError,
    backend::{BoxFuture, Mark, Marked, Marks},
    time::clock::Instant,
};

/// Number of attempts at a node that other clients change between two requests.
const ATTEMPTS: usize = 10;

/// Number of the format.
const FORMAT: &str = "1:";

impl Marks for ZooKeeper {
    fn set<'a>(&'a self, mark: &'a Mark) -> BoxFuture<'a, Result<Marked, LockError>> {
        Box::pin(async move {
            let session = self.link.session().await?;
            let decide = |entry: Option<&Entry>| decide(entry, mark, number_now(mark.length));
            change(&session, mark, &data(mark.period, Some(mark.owner.expose())), decide).await
        })
    }

    fn remove<'a>(&'a self, mark: &'a Mark) -> BoxFuture<'a, Result<(), LockError>> {
        Box::pin(async move {
            let session = self.link.session().await?;
            let decide = |entry: Option<&Entry>| match entry {
                // A request that is under way expects another version.
                Some(entry) if !entry.is_removable(mark, number_now(mark.length)) => Step::Done(()),
                _ => Step::Write(()),
            };
            change(&session, mark, &data(mark.period, None), decide).await
        })
    }
}

/// What a node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    period: u64,
    /// `None` if the mark is removed.
    owner: Option<u128>,
}

impl Entry {
    /// Reads the data of a node. Data that are not understood are those of no period, so that they keep no job from running.
    fn read(data: &[u8]) -> Self {
        let read = || {
            let (period, owner) = str::from_utf8(data).ok()?.strip_prefix(FORMAT)?.split_once(':')?;
            let owner = if owner.is_empty() { None } else { Some(u128::from_str_radix(owner, 16).ok()?) };
            Some(Self { period: period.parse().ok()?, owner })
        };
        read().unwrap_or(Self { period: 0, owner: None })
    }

    /// Returns whether the removal of `mark` changes the node, in the period with the number `now`: whether a request to set
    /// the mark, which is still under way, may have been made for this entry, or has been carried out.
    fn is_removable(&self, mark: &Mark, now: u64) -> bool {
        let is_anothers = self.owner.is_some_and(|owner| owner != mark.owner.expose());
        self.period < mark.period
            || self.period == mark.period && !is_anothers
            || self.period > mark.period && self.is_of_a_wrong_clock(now)
    }

    /// Returns whether the entry was set by a client with a wrong clock: it names a period more than two further on than
    /// `now`.
    fn is_of_a_wrong_clock(&self, now: u64) -> bool {
        self.period > now.saturating_add(2)
    }
}

fn data(period: u64, owner: Option<u128>) -> String {
    format!("{FORMAT}{period}:{}", owner.map_or_else(String::new, |owner| format!("{owner:032x}")))
}

/// What follows from the state of a node.
#[derive(Debug, PartialEq, Eq)]
enum Step<T> {
    /// Nothing is to be written.
    Done(T),
    /// The result, once the node is written.
    Write(T),
}

/// Returns the number of the period in which we are.
fn number_now(length: Duration) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos() / length.as_nanos().max(1)).unwrap_or(u64::MAX)
}

/// Decides whether a mark can be set, given the present entry, and the number of the period in which we are.
fn decide(entry: Option<&Entry>, mark: &Mark, now: u64) -> Step<Marked> {
    match entry {
        Some(entry) if entry.period > mark.period && !entry.is_of_a_wrong_clock(now) => {
            Step::Done(Marked::Taken)
        }
        Some(Entry { period, owner: Some(owner) }) if *period == mark.period => {
            Step::Done(if *owner == mark.owner.expose() { Marked::Set } else { Marked::Taken })
        }
        _ => Step::Write(Marked::Set),
    }
}

/// Reads the node of a mark, and writes `data` if `decide` says so. Starts over if the node has changed in between.
async fn change<T>(
    session: &Session,
    mark: &Mark,
    data: &str,
    decide: impl Fn(Option<&Entry>) -> Step<T>,
) -> Result<T, LockError> {
    let path = names::lock(&mark.key);
    for _ in 0..ATTEMPTS {
        // Sends nothing while the servers are silent: a disconnected driver would queue the request and send it later.
        session.answering().await.map_err(Failure::into_error)?;
        // The server to which we are connected may lag behind the others. It answers the calls in their order.
        let (synced, read) = (session.client.sync("/"), session.client.get_data(&path));
        let (synced, read) = tokio::join!(session.answer(synced), session.answer(read));
        synced.map_err(failed)?;
        let present = match read {
            Ok((data, stat)) => Some((Entry::read(&data), stat.version)),
            Err(zk::Error::NoNode) => None,
            Err(error) => return Err(failed(error)),
        };
        let done = match decide(present.as_ref().map(|(entry, _)| entry)) {
            Step::Done(done) => return Ok(done),
            Step::Write(done) => done,
        };
        let sent = Instant::now();
        let written = if let Some((_, version)) = present {
            session.answer(session.client.set_data(&path, data.as_bytes(), Some(version))).await.map(drop)
        } else {
            let options = zk::CreateMode::Persistent.with_acls(session.acls);
            session.answer(session.client.create(&path, data.as_bytes(), &options)).await.map(drop)
        };
        match written {
            Ok(()) => {
                session.wrote(sent);
                return Ok(done);
            }
            Err(zk::Error::BadVersion | zk::Error::NodeExists) => {}
            // The node was removed by hand, unless the chroot is gone.
            Err(zk::Error::NoNode) if present.is_some() => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(LockError::backend("the mark of the period in ZooKeeper changes all the time"))
}

fn failed(error: zk::Error) -> LockError {
    Failure::of(error).into_error()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockKey, OwnerToken};

    fn mark(period: u64, owner: u128) -> Mark {
        let length = Duration::from_secs(1);
        let key = LockKey::new("k").expect("valid").mark(period, length);
        Mark { key, period, length, owner: OwnerToken::from(owner), lasts: Duration::from_secs(1) }
    }

    fn entry(period: u64, owner: impl Into<Option<u128>>) -> Entry {
        Entry { period, owner: owner.into() }
    }

    #[test]
    fn what_is_written_is_read_and_other_data_name_no_period() {
        for entry in [entry(7, 1), entry(7, u128::MAX), entry(0, None), entry(u64::MAX, None)] {
            assert_eq!(Entry::read(data(entry.period, entry.owner).as_bytes()), entry);
        }
        for other in [&b""[..], b"1:", b"1:x:", b"1:7", b"1:7:x", b"2:7:1", b"\xff"] {
            assert_eq!(Entry::read(other), entry(0, None), "{other:?}");
        }
    }

    #[test]
    fn a_mark_is_set_once_and_its_owner_recognises_it() {
        let ours = mark(8, 1);
        for (present, step) in [
            (None, Step::Write(Marked::Set)),
            (Some(entry(6, 2)), Step::Write(Marked::Set)),
            (Some(entry(6, None)), Step::Write(Marked::Set)),
            (Some(entry(8, None)), Step::Write(Marked::Set)),
            (Some(entry(8, 1)), Step::Done(Marked::Set)),
            (Some(entry(8, 2)), Step::Done(Marked::Taken)),
            (Some(entry(10, 2)), Step::Done(Marked::Taken)),
            (Some(entry(10, None)), Step::Done(Marked::Taken)),
            (Some(entry(12, 2)), Step::Write(Marked::Set)),
        ] {
            assert_eq!(decide(present.as_ref(), &ours, 9), step, "{present:?}");
        }
        // Ours is late.
        assert_eq!(decide(Some(&entry(12, 2)), &ours, 12), Step::Done(Marked::Taken));
    }

    #[test]
    fn a_removal_spares_the_marks_of_others() {
        for (present, is_removable) in [
            (entry(8, 1), true),
            (entry(6, 2), true),
            (entry(8, None), true),
            (entry(8, 2), false),
            (entry(10, 2), false),
            (entry(10, None), false),
            (entry(12, 2), true),
        ] {
            assert_eq!(present.is_removable(&mark(8, 1), 9), is_removable, "{present:?}");
        }
    }
}
