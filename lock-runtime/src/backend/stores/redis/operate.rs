//! The calls of operators: who holds which lock, who waits, and how a lock is taken from its holder.

use redis::{Cmd, FromRedisValue};

use super::{
    Redis, examine, names, of_wrong_type,
    queue::{self, scripts},
    servers::{Again, Node},
    shown::{self, Shown},
};
use crate::{
    LockError, LockErrorKind, LockKey,
    backend::{
        BoxFuture, Examination, Examined, LockState, Operate, Page, Revoke, Revoked, Scan,
        common::cold::cold,
        kits::redis::{
            batch::join_all,
            error::{self, Failure},
            net::Script,
        },
    },
    time::clock::{self, Instant},
};

/// Upper bound on the waiters that [`inspect`](Operate::inspect) shows.
const MAX_SHOWN_WAITERS: usize = 1_000;
/// Number of keys that the server looks at in one step of a scan: less than a millisecond of work.
const KEYS_PER_STEP: usize = 500;
/// Upper bound on the holders that one call of a scan reads: about a millisecond of work.
const HOLDERS_PER_CALL: usize = 128;
/// Upper bound on the bytes of a value that a scan reads. No holder of this library has a longer value.
const MAX_VALUE_BYTES: usize = 512;

impl Operate for Redis {
    fn inspect<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState, LockError>> {
        Box::pin(async move {
            let mut call = scripts::INSPECT.call_with_room(6, 10, 512);
            queue::add_domain(&mut call, self.servers.participant().process(), key);
            queue::add_lock(&mut call, key);
            call.arg(MAX_SHOWN_WAITERS);
            let answer = self.run::<Vec<String>>(key, &scripts::INSPECT, &call).await;
            let answer = self.named(answer, key).await?;
            let [pttl, holder, waiters @ ..] = &answer[..] else { return Err(unexpected()) };
            let remaining = shown::remaining(pttl.parse().map_err(|_| unexpected())?);
            let state = match Shown::of(holder) {
                Some(holder) => holder.state(key.clone(), remaining),
                None => LockState::free(key.clone()),
            };
            Ok(state.with_waiters(waiters.iter().map(|waiter| shown::waiter(waiter)).collect()))
        })
    }

    /// A page is one step of `SCAN`, so most pages are empty if the database has many other keys.
    fn scan<'a>(&'a self, scan: &'a Scan) -> BoxFuture<'a, Result<Page, LockError>> {
        Box::pin(async move {
            let (number, from) = scan.from.as_deref().unwrap_or("0 0").split_once(' ').unwrap_or_default();
            let (Ok(number), Ok(_)) = (number.parse::<u64>(), from.parse::<u64>()) else {
                return Err(LockError::new(LockErrorKind::InvalidOptions, "not a page of this store"));
            };
            let nodes = self.servers.all().await?;
            // The server of the last page may have left since.
            let Some((at, node)) = nodes.iter().find(|(at, _)| *at >= number) else {
                return Ok(Page::new(Vec::new(), None));
            };
            let from = if *at == number { from } else { "0" };
            let after = nodes.iter().map(|(later, _)| later).find(|later| *later > at);
            let mut step = redis::cmd("SCAN");
            step.arg(from).arg("MATCH").arg(pattern(&scan.stored()));
            step.arg("COUNT").arg(KEYS_PER_STEP).arg("TYPE").arg("string");
            let step = call_at::<(String, Vec<Vec<u8>>)>(node, &step).await;
            let (next, names) = step.map_err(needs_rights)?;
            let next = match next.as_str() {
                "0" => after.map(|after| format!("{after} 0")),
                next => Some(format!("{at} {next}")),
            };
            // What is no lock's name is a key beside a lock, or of another program.
            let keys = names.iter().filter_map(|name| scan.key(str::from_utf8(name).ok()?));
            let mut keys: Vec<_> = keys.collect();
            let process = self.servers.participant().process();
            keys.sort_by(|a, b| process.domain(a).cmp(&process.domain(b)));
            let alike = keys.chunk_by(|a, b| process.domain(a) == process.domain(b));
            // In a cluster, most locks need a call of their own; all calls share a round trip.
            let parts: Vec<_> = alike.flat_map(|alike| alike.chunks(HOLDERS_PER_CALL)).collect();
            let mut found: Vec<_> = parts.iter().map(|_| Ok(Vec::new())).collect();
            let read = parts.iter().zip(&mut found);
            let calls = read.map(|(part, found)| -> BoxFuture<'_, ()> {
                Box::pin(async { *found = self.holders(part).await })
            });
            join_all(calls.collect()).await;
            let mut locks = Vec::new();
            for found in found {
                locks.extend(found?);
            }
            Ok(Page::new(locks, next))
        })
    }

    fn examine<'a>(&'a self, examination: &'a Examination) -> BoxFuture<'a, Result<Examined, LockError>> {
        Box::pin(examine::examine(&self.servers, examination))
    }

    fn revoke<'a>(&'a self, revoke: &'a Revoke) -> BoxFuture<'a, Result<Revoked, LockError>> {
        Box::pin(async move {
            let key = &revoke.key;
            let (how, which) = match (revoke.token, revoke.is_forced) {
                (Some(token), is_forced) => {
                    (if is_forced { "free" } else { "mark" }, token.micros().to_string())
                }
                (None, false) => return Ok(Revoked::NotHeld),
                (None, true) => match self.ask_to_revoke(key, "look", "").await? {
                    None => return Ok(Revoked::NotHeld),
                    Some(seen) => ("free foreign", self.soon_after(&seen)?),
                },
            };
            match self.ask_to_revoke(key, how, &which).await? {
                None => Ok(Revoked::NotHeld),
                Some(answer) if answer == "late" => Err(LockError::backend(
                    "the request reached the server too late, and nothing was freed; try again",
                )),
                Some(_) => Ok(Revoked::Revoked),
            }
        })
    }
}

impl Redis {
    /// Returns what names a foreign holder in the next call, from the digest and the time that a look has answered: the
    /// digest, and a limit after which the call does nothing. Another client may have the same value in its next hold.
    fn soon_after(&self, seen: &str) -> Result<String, LockError> {
        let (digest, time) = seen.split_once(' ').ok_or_else(unexpected)?;
        let time: u64 = time.parse().map_err(|_| unexpected())?;
        let limit = self.config().response_timeout;
        let limit = time.saturating_add(u64::try_from(limit.as_micros()).unwrap_or(u64::MAX));
        Ok(format!("{digest} {limit}"))
    }

    /// Calls `revoke.lua`; returns `None` if the lock is not held by this grant.
    async fn ask_to_revoke(
        &self,
        key: &LockKey,
        how: &str,
        which: &str,
    ) -> Result<Option<String>, LockError> {
        let mut call = scripts::REVOKE.call_with_room(6, 12, 640);
        queue::add_domain(&mut call, self.servers.participant().process(), key);
        queue::add_lock(&mut call, key);
        call.arg(how).arg(which).arg(names::inbox(key.prefix(), ""));
        let answer = self.run::<String>(key, &scripts::REVOKE, &call).await;
        let answer = self.named(answer, key).await?;
        Ok(Some(answer).filter(|answer| answer != "not held"))
    }

    /// Returns those of these locks, of one domain, that are held.
    ///
    /// A name that the user may not read is left out.
    async fn holders(&self, keys: &[LockKey]) -> Result<Vec<LockState>, LockError> {
        match self.read_holders(keys).await {
            // While the keys of a slot are being moved, a call for several of them is refused.
            Err(failure) if keys.len() > 1 && (is_of_a_name(&failure) || is_redirected(&failure)) => {
                let mut locks = Vec::new();
                for alone in keys.chunks(1) {
                    match cold(self.read_holders(alone)).await {
                        Err(failure) if is_of_a_name(&failure) => {}
                        answer => locks.extend(answer.map_err(needs_rights)?),
                    }
                }
                Ok(locks)
            }
            Err(failure) if is_of_a_name(&failure) => Ok(Vec::new()),
            answer => answer.map_err(needs_rights),
        }
    }

    async fn read_holders(&self, keys: &[LockKey]) -> Result<Vec<LockState>, Failure> {
        let mut call = scripts::SCAN.call_with_room(keys.len(), 4 + keys.len(), 128 + 64 * keys.len());
        for key in keys {
            call.arg(key.stored());
        }
        call.arg(MAX_VALUE_BYTES - 1);
        let answers = self.run::<Vec<String>>(&keys[0], &scripts::SCAN, &call).await?;
        if answers.len() != keys.len() {
            return Err(Failure::Refused(unexpected()));
        }
        let state = |(key, answer): (&LockKey, &String)| {
            let (pttl, holder) = answer.split_once(' ')?;
            Some(Shown::of(holder)?.state(key.clone(), shown::remaining(pttl.parse().ok()?)))
        };
        Ok(keys.iter().zip(&answers).filter_map(state).collect())
    }

    /// Runs a script about `key`, and about other locks of its domain.
    async fn run<T: FromRedisValue>(&self, key: &LockKey, script: &Script, call: &Cmd) -> Result<T, Failure> {
        let mut route = self.servers.route(key, Again::IfNotApplied);
        let has_one_key = call.args_iter().nth(2).is_some_and(|keys| keys == redis::Arg::Simple(b"1"));
        loop {
            let answer = match route.line().await {
                Ok(line) => line.connection().run(script, call).await,
                Err(failure) => Err(failure),
            };
            match answer {
                Err(failure) if has_one_key => match route.again_with_one_key_after(&failure) {
                    Some(pause) => clock::sleep_until(Instant::now() + pause).await,
                    None => return Err(failure),
                },
                Err(failure) => match route.again_after(&failure) {
                    Some(pause) => clock::sleep_until(Instant::now() + pause).await,
                    None => return Err(failure),
                },
                answer => return answer,
            }
        }
    }

    /// Returns the answer, or an error that names a key of a wrong type.
    async fn named<T>(&self, answer: Result<T, Failure>, key: &LockKey) -> Result<T, LockError> {
        match answer.map_err(Failure::into_error) {
            Err(error) if error.kind() == LockErrorKind::InvalidKey => {
                Err(of_wrong_type(&self.servers, key).await.unwrap_or(error))
            }
            answer => answer,
        }
    }
}

async fn call_at<T: FromRedisValue>(node: &Node, call: &Cmd) -> Result<T, Failure> {
    match node.connections.here().await?.connection().call(call).await {
        Err(Failure::GivenUp(_)) => node.connections.here().await?.connection().call(call).await,
        answer => answer,
    }
}

/// Returns a pattern for the names that begin with `names`.
fn pattern(names: &str) -> String {
    let mut pattern = String::with_capacity(names.len() + 8);
    for character in names.chars() {
        if r"\*?[]".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern + "*"
}

/// Returns whether the server has refused a call because the user may not read one of the keys.
fn is_of_a_name(failure: &Failure) -> bool {
    let Failure::Refused(error) = failure else { return false };
    error::no_permission(error).is_some_and(|detail| detail.contains("to access"))
}

fn is_redirected(failure: &Failure) -> bool {
    matches!(failure, Failure::Redirected(..))
}

/// Returns the error of a scan, which names the rights that only a scan needs.
fn needs_rights(failure: Failure) -> LockError {
    let error = failure.into_error();
    if error::no_permission(&error).is_none() {
        return error;
    }
    let message =
        "the Redis user may not scan the locks; grant it `+scan +getrange`, which nothing else needs";
    LockError::backend(message).into_permanent().with_source(error)
}

fn unexpected() -> LockError {
    error::unexpected("a question of an operator")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_pattern_matches_what_it_is_made_of() {
        assert_eq!(pattern(""), "*");
        assert_eq!(pattern("lock:user:"), "lock:user:*");
        assert_eq!(pattern(r"a*b?[c]\d-^"), r"a\*b\?\[c\]\\d-^*");
    }

    #[test]
    fn the_rights_of_a_scan_are_on_the_page() {
        let used: BTreeSet<_> = scripts::SCAN.commands().chain(["SCAN"]).map(str::to_lowercase).collect();
        let page = include_str!("docs.md");
        let usual = page.split("ACL SETUSER").nth(1).expect("the page has the user");
        let added = used.iter().filter(|command| !usual.contains(&format!(" +{command} ")));
        let added: Vec<_> = added.map(|command| format!("+{command}")).collect();
        assert_eq!(added, ["+getrange", "+scan"]);
        assert!(page.contains("ACL SETUSER locks +scan +getrange\n"));
    }
}
