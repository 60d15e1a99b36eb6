//! What ZooKeeper shows to operators, and how they take a lock from its holder.
//!
//! The first contender of a lock is its holder. A revocation changes the data of the holder's node, and names the node's
//! version, so that of two changes only one is applied. A node's name has the owner token, so a revocation that the
//! servers carry out late cannot meet another grant. The holder sees the change by the watch of its node, and gives the
//! lock back; the contenders behind it wait until the node is gone.

use std::borrow::Cow;

use ::zookeeper_client as zk;

use super::{
    ZooKeeper,
    error::Failure,
    examine, names, queue,
    record::{self, Contender},
    session::Session,
};
use crate::{
    LockError, LockErrorKind, LockKey,
    backend::{
        BoxFuture, Examination, Examined, FindingCode, LockState, Operate, Page, Revoke, Revoked, Scan,
    },
};

/// Upper bound on the reads that are sent before the first of them is answered.
const MAX_PENDING_READS: usize = 100;

/// Upper bound on the nodes of locks that one page reads.
const LOCKS_PER_PAGE: usize = 100;

/// Upper bound on the children of the chroot that a scan lists. ZooKeeper has no listing in pages, and the session's
/// heartbeats wait behind a long answer.
const MAX_LISTED: i32 = 100_000;

/// Number of attempts at a lock whose contenders change between two requests.
const ATTEMPTS: usize = 5;

impl Operate for ZooKeeper {
    fn inspect<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState, LockError>> {
        Box::pin(async move {
            let session = self.link.session().await?;
            let read = async {
                session.answering().await?;
                // The server to which we are connected may lag behind the others. It answers the calls in their order.
                let synced = session.client.sync("/");
                let path = names::lock(key);
                let contenders = contenders(&session, &path);
                let (synced, contenders) = tokio::join!(session.answer(synced), contenders);
                synced.map_err(Failure::of)?;
                contenders
            };
            let contenders = read.await.map_err(|failure| denied(failure, "`r` on the lock's node"))?;
            Ok(state(key.clone(), &contenders))
        })
    }

    /// The first page lists the nodes of all locks once; the names that are left follow in [`Scan::from`].
    fn scan<'a>(&'a self, scan: &'a Scan) -> BoxFuture<'a, Result<Page, LockError>> {
        Box::pin(async move {
            let session = self.link.session().await?;
            session.answering().await.map_err(Failure::into_error)?;
            let names = match &scan.from {
                None => Cow::Owned(list(&session, scan).await?),
                Some(names) => Cow::Borrowed(names),
            };
            let (page, next) = cut(&names);
            let keys = page.filter_map(|name| scan.key(&names::stored(name)?));
            let locks = read_locks(&session, keys.collect()).await.map_err(Failure::into_error)?;
            Ok(Page::new(locks, next.map(str::to_owned)))
        })
    }

    fn revoke<'a>(&'a self, revoke: &'a Revoke) -> BoxFuture<'a, Result<Revoked, LockError>> {
        Box::pin(async move {
            let session = self.link.session().await?;
            let path = names::lock(&revoke.key);
            let look = async {
                session.answering().await?;
                // That a lock is not held is said only by a server that knows everything that was carried out before.
                session.answer(session.write_barrier()).await.map_err(Failure::of)
            };
            look.await.map_err(Failure::into_error)?;
            let mut first: Option<String> = None;
            for _ in 0..ATTEMPTS {
                let contenders = contenders(&session, &path).await;
                let contenders = contenders.map_err(|failure| denied(failure, "`r` on the lock's node"))?;
                let Some(holder) = contenders.first() else { return Ok(Revoked::NotHeld) };
                // Without a token, only the holder that was seen first is meant.
                let is_first = *first.get_or_insert_with(|| holder.path.clone()) == holder.path;
                if !is_meant(holder, revoke)? || !is_first {
                    return Ok(Revoked::NotHeld);
                }
                match take(&session, holder, revoke.is_forced).await {
                    Ok(()) => return Ok(Revoked::Revoked),
                    // The node is gone, or its data were changed.
                    Err(zk::Error::NoNode | zk::Error::BadVersion) => {}
                    Err(error) => {
                        let right = if revoke.is_forced {
                            "`d` on the lock's node"
                        } else {
                            "`w` on the holder's node"
                        };
                        return Err(denied(Failure::of(error), right));
                    }
                }
            }
            Err(LockError::backend("the holder's node changes too fast; try again"))
        })
    }

    fn examine<'a>(&'a self, _: &'a Examination) -> BoxFuture<'a, Result<Examined, LockError>> {
        Box::pin(examine::examine(&self.link))
    }
}

/// Returns whether `revoke` means the grant of this holder.
fn is_meant(holder: &Contender, revoke: &Revoke) -> Result<bool, LockError> {
    // Behind data that this client may not read, there may be a client of this library or of another one.
    let is_foreign = holder.data.is_some().then(|| holder.is_foreign());
    match revoke.token {
        Some(token) if token != holder.token() => Ok(false),
        Some(_) if is_foreign == Some(true) => {
            let message = "the holder is a client of another library, or its node was overwritten; the lock can only be \
                           revoked by force, without a token";
            Err(LockError::new(LockErrorKind::Unsupported, message))
        }
        Some(_) if is_foreign.is_some() || revoke.is_forced => Ok(true),
        None if is_foreign.is_some() => Ok(is_foreign == Some(true) && revoke.is_forced),
        _ => Err(denied(Failure::of(zk::Error::NoAuth), "`r` on the holder's node")),
    }
}

/// Deletes the node of a holder by force, or marks its grant as revoked.
async fn take(session: &Session, holder: &Contender, is_forced: bool) -> Result<(), zk::Error> {
    let version = Some(holder.stat.version);
    if is_forced {
        return session.answer(session.client.delete(&holder.path, version)).await;
    }
    let data = holder.data.as_deref().ok_or(zk::Error::NoAuth)?;
    if record::is_revoked(data) {
        return Ok(());
    }
    let marked = session.client.set_data(&holder.path, &record::revoked(data), version);
    session.answer(marked).await.map(drop)
}

/// Lists the nodes of all locks that belong to the scan; between two names is a `/`, which no name contains.
async fn list(session: &Session, scan: &Scan) -> Result<String, LockError> {
    let client = &session.client;
    // The server to which we are connected may lag behind the others. It answers the calls in their order.
    let (synced, stat) = (client.sync("/"), client.check_stat("/"));
    let (synced, stat) = tokio::join!(session.answer(synced), session.answer(stat));
    let failed = |error| denied(Failure::of(error), "`r` on the node below which the locks are (the chroot)");
    synced.map_err(failed)?;
    check_length(stat.map_err(failed)?.map_or(0, |stat| stat.num_children))?;
    let mut names = session.answer(client.list_children("/")).await.map_err(failed)?;
    names.retain(|name| names::stored(name).is_some_and(|stored| scan.key(&stored).is_some()));
    Ok(names.join("/"))
}

fn check_length(children: i32) -> Result<(), LockError> {
    if children <= MAX_LISTED {
        return Ok(());
    }
    let message = format!(
        "ZooKeeper cannot be scanned: there are {children} nodes next to each other, and ZooKeeper lists only all of them \
         at once, for which the limit is {MAX_LISTED}; inspect single locks, or divide the locks among several chroots"
    );
    Err(LockError::new(LockErrorKind::Unsupported, message))
}

/// Returns the names of the next page, and the names that are left, if any.
fn cut(names: &str) -> (impl Iterator<Item = &str>, Option<&str>) {
    let end = names.match_indices('/').nth(LOCKS_PER_PAGE - 1).map(|(at, _)| at);
    let (page, next) = match end {
        Some(end) => (&names[..end], Some(&names[end + 1..])),
        None => (names, None),
    };
    (page.split('/'), next)
}

/// Reads the contenders of several locks, and returns the locks that are held.
///
/// Locks that belong to another user are left out.
async fn read_locks(session: &Session, keys: Vec<LockKey>) -> Result<Vec<LockState>, Failure> {
    let paths: Vec<_> = keys.iter().map(names::lock).collect();
    // A call sends its request at once, before it is polled.
    let listed: Vec<_> = paths.iter().map(|path| session.client.list_children(path)).collect();
    let (mut nodes, mut counts) = (Vec::new(), Vec::new());
    for (path, listed) in paths.iter().zip(listed) {
        let children = match session.answer(listed).await {
            Ok(children) => children,
            Err(zk::Error::NoNode | zk::Error::NoAuth) => Vec::new(),
            Err(error) => return Err(Failure::of(error)),
        };
        let contenders = queue::in_order(&children);
        counts.push(contenders.len());
        nodes.extend(contenders.into_iter().map(|name| format!("{path}/{name}")));
    }
    let mut nodes = read(session, nodes).await?.into_iter();
    let mut locks = Vec::new();
    for ((key, path), count) in keys.into_iter().zip(&paths).zip(counts) {
        let mut found: Vec<_> = nodes.by_ref().take(count).flatten().collect();
        if found.is_empty() && count > 0 {
            found = contenders(session, path).await?;
        }
        locks.extend(Some(state(key, &found)).filter(LockState::is_held));
    }
    Ok(locks)
}

/// Reads the contenders of a lock, in their order.
async fn contenders(session: &Session, path: &str) -> Result<Vec<Contender>, Failure> {
    let mut found = Vec::new();
    // All contenders of a busy lock may have gone before they are read.
    for _ in 0..ATTEMPTS {
        let children = match session.answer(session.client.list_children(path)).await {
            Err(zk::Error::NoNode) => Vec::new(),
            listed => listed.map_err(Failure::of)?,
        };
        let nodes: Vec<_> =
            queue::in_order(&children).into_iter().map(|name| format!("{path}/{name}")).collect();
        let is_free = nodes.is_empty();
        found = read(session, nodes).await?.into_iter().flatten().collect();
        if is_free || !found.is_empty() {
            break;
        }
    }
    Ok(found)
}

/// Reads nodes; `None` for each node that is gone.
async fn read(session: &Session, paths: Vec<String>) -> Result<Vec<Option<Contender>>, Failure> {
    let mut found = Vec::with_capacity(paths.len());
    let mut paths = paths.into_iter();
    loop {
        let paths: Vec<_> = paths.by_ref().take(MAX_PENDING_READS).collect();
        if paths.is_empty() {
            return Ok(found);
        }
        // A call sends its request at once, before it is polled.
        let answers: Vec<_> = paths.iter().map(|path| session.client.get_data(path)).collect();
        for (path, answer) in paths.iter().zip(answers) {
            let read = match session.answer(answer).await {
                Ok((data, stat)) => Some((Some(data), stat)),
                Err(zk::Error::NoNode) => None,
                // Each client may read the state of each node.
                Err(zk::Error::NoAuth) => {
                    let stat = session.answer(session.client.check_stat(path)).await.map_err(Failure::of)?;
                    stat.map(|stat| (None, stat))
                }
                Err(error) => return Err(Failure::of(error)),
            };
            found.push(read.map(|(data, stat)| Contender { path: path.clone(), data, stat }));
        }
    }
}

/// Describes a lock with these contenders.
fn state(key: LockKey, contenders: &[Contender]) -> LockState {
    match contenders {
        [] => LockState::free(key),
        [holder, waiters @ ..] => LockState::held(key, holder.holder())
            .with_waiters(waiters.iter().map(Contender::waiter).collect()),
    }
}

/// Returns the error of a failure, which names the right that is missing if the servers denied access.
fn denied(failure: Failure, right: &str) -> LockError {
    let error = failure.into_error();
    if is_denial(&error) {
        let message =
            format!("ZooKeeper denied access: the user of this client needs the permission {right}");
        let denied = LockError::backend(message).with_source(error).into_permanent();
        return denied.with_fault(FindingCode::Rights);
    }
    error
}

fn is_denial(error: &LockError) -> bool {
    let source = std::error::Error::source(error);
    source.and_then(|source| source.downcast_ref()) == Some(&zk::Error::NoAuth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_scan_come_in_pages() {
        let names: Vec<_> = (0..=2 * LOCKS_PER_PAGE).map(|number| number.to_string()).collect();
        for count in [1, LOCKS_PER_PAGE - 1, LOCKS_PER_PAGE, LOCKS_PER_PAGE + 1, names.len()] {
            let mut left = Some(names[..count].join("/"));
            let (mut found, mut pages) = (Vec::new(), 0);
            while let Some(names) = left {
                let (page, next) = cut(&names);
                let page: Vec<_> = page.map(str::to_owned).collect();
                assert!((1..=LOCKS_PER_PAGE).contains(&page.len()));
                found.extend(page);
                pages += 1;
                left = next.map(str::to_owned);
            }
            assert_eq!((&found[..], pages), (&names[..count], count.div_ceil(LOCKS_PER_PAGE)));
        }
        let (page, next) = cut("");
        assert!(page.eq([""]) && next.is_none() && names::stored("").is_some_and(|name| name.is_empty()));
    }

    #[test]
    fn a_node_with_more_children_than_the_limit_is_not_listed() {
        check_length(MAX_LISTED).expect("as many as the limit");
        let error = check_length(MAX_LISTED + 1).expect_err("more");
        assert_eq!(error.kind(), LockErrorKind::Unsupported);
        assert!(error.to_string().contains("100000") && error.to_string().contains("100001"), "{error}");
    }
}
