//! The questions of operators to the nodes: who holds a lock, and the requests to take a lock from its holder.
//!
//! These are rare, and do not share round trips with the questions about acquisitions and renewals.

use std::{future::Future, sync::Arc, time::Duration};

use redis::Value;
use tokio::task::JoinSet;

use super::{
    error::out_of_reach,
    hold::{LAST_NODES_AT_LEAST, LATE_RELEASE_MULTIPLE},
    look::Look,
    node::Node,
    nodes::Nodes,
    operation::answer_about_one,
    protocol::Protocol,
    quorum::{Count, Decision},
    shared::Shared,
    sighting::Sighting,
};
use crate::{
    LockError, LockErrorKind, LockKey,
    backend::{
        LockState, Revoke, Revoked,
        kits::redis::{
            error::{self, Failure},
            net::{Connection, Script},
        },
    },
    time::clock::{Instant, sleep_until},
};

/// Upper bound on the attempts to take a lock, where a node refuses an attempt because its estimated clock was wrong.
const ATTEMPTS: u32 = 2;

/// Returns who holds a lock, as a majority of the nodes shows it.
pub(crate) async fn inspect(shared: &Shared, key: &LockKey) -> Result<LockState, LockError> {
    Ok(look_at(&shared.nodes, key).await?.state(key, &*shared.nodes.protocol))
}

/// Takes a lock from a holder. First, the nodes are asked for the holder with the token. Then each node compares the
/// identity of this holder, which no other grant has, in the atomic step in which it revokes or frees the lock.
pub(crate) async fn revoke(shared: &Shared, revoke: &Revoke) -> Result<Revoked, LockError> {
    let Shared { nodes, .. } = shared;
    let scripts = nodes.protocol.for_operators();
    let script = match scripts.revoke {
        _ if revoke.is_forced => scripts.free,
        Some(script) if revoke.token.is_some() => script,
        _ => return Err(only_by_force(&*nodes.protocol)),
    };
    let look = look_at(nodes, &revoke.key).await?;
    let Some(order) = Order::of(&look, revoke, script, &nodes.protocol) else { return Ok(Revoked::NotHeld) };
    let order = Arc::new(order);
    let ask = |node: Arc<Node>| {
        let order = Arc::clone(&order);
        async move { order.send(&node).await }
    };
    let all = nodes.of.len();
    let is_decided = |answers: &[(usize, i64)]| {
        let count = count(all, answers);
        // What is left on a minority is freed, too.
        if revoke.is_forced {
            count.is_definite()
        } else {
            count.has_majority() == Decision::Yes || count.is_denied()
        }
    };
    let Answers { of: answers, failures } = ask_each(nodes, ask, is_decided).await;
    nodes.inbox.revocations.notify(revoke.key.stored());
    let count = count(all, &answers);
    let is_revoked = if revoke.is_forced {
        count.is_definite().then_some(count.yes > 0)
    } else {
        // A majority of the nodes must refuse the renewals. The nodes that only lack the lease may still be given it.
        (count.has_majority() == Decision::Yes || count.is_denied()).then_some(!count.is_denied())
    };
    match is_revoked {
        Some(true) => Ok(Revoked::Revoked),
        Some(false) => Ok(Revoked::NotHeld),
        None => Err(out_of_reach(&nodes.of, failures)),
    }
}

fn only_by_force(protocol: &dyn Protocol) -> LockError {
    let message = format!(
        "this lock of `{}:` can only be revoked by force (`LockManager::revoke_by_force`), which frees it at once",
        protocol.store()
    );
    LockError::new(LockErrorKind::Unsupported, message)
}

fn count(nodes: usize, answers: &[(usize, i64)]) -> Count {
    let mut count = Count::of(nodes);
    for (_, answer) in answers {
        count.add(Some(*answer > 0));
    }
    count
}

/// The request to take a lock from one holder.
struct Order {
    key: LockKey,
    script: &'static Script,
    protocol: Arc<dyn Protocol>,
    /// See [`Sighting::identity`].
    identity: Vec<u8>,
    /// The largest known fence; `None` for a client of another library.
    fence: Option<u64>,
}

impl Order {
    /// Returns the request to take the lock from the holder with the token, if the nodes show this holder.
    fn of(
        look: &Look,
        revoke: &Revoke,
        script: &'static Script,
        protocol: &Arc<dyn Protocol>,
    ) -> Option<Self> {
        let candidates = look.candidates();
        let holder = candidates.iter().find(|holder| holder.has(revoke.token, &**protocol))?;
        Some(Self {
            key: revoke.key.clone(),
            script,
            protocol: Arc::clone(protocol),
            identity: holder.first().identity.clone(),
            fence: holder.largest_fence(),
        })
    }

    /// Returns 1 if the node has taken the lock from the holder, and 0 if the holder does not have the lock there.
    async fn send(&self, node: &Arc<Node>) -> Result<i64, Failure> {
        let line = node.here().await?;
        let connection: &Connection = &line.connection;
        for _ in 0..ATTEMPTS {
            let sent = Instant::now();
            let mut call = self.script.call_with_room(2, 10, 512);
            call.arg(self.key.stored());
            self.protocol.write_counter(&mut call, &self.key);
            // A client of another library may have the same identity in its next hold.
            call.arg(connection.clock().at(sent + connection.response_timeout())).arg(&self.identity);
            match self.fence {
                Some(fence) => call.arg(fence),
                None => call.arg(""),
            };
            call.arg(self.protocol.revocations(self.key.prefix()));
            let answers = connection.run::<Vec<Value>>(self.script, &call).await?;
            let Some((Value::Int(time), answer)) = answers.split_first() else { return Err(unexpected()) };
            let time = u64::try_from(*time).map_err(|_| unexpected())?;
            if let [answer] = answer {
                connection.clock().learn(sent, Instant::now(), time);
                return answer_about_one(connection, answer);
            }
            connection.clock().replace(Instant::now(), time);
        }
        Err(Failure::too_late())
    }
}

/// Returns what the nodes show of a lock; an error if fewer than a majority of them answer.
async fn look_at(nodes: &Nodes, key: &LockKey) -> Result<Look, LockError> {
    let mut looks = look(nodes, &Arc::from([key.clone()])).await?;
    let (look, failures) = looks.pop().ok_or_else(|| unexpected().into_error())?;
    if look.seen.len() < nodes.majority() {
        return Err(out_of_reach(&nodes.of, failures));
    }
    Ok(look)
}

/// Returns what the nodes show of each of these locks, in their order, and the failures of the nodes that do not show the lock.
/// Fails if fewer than a majority of the nodes answer. A name that a node cannot show fails for this node and name alone.
pub(super) async fn look(
    nodes: &Nodes,
    keys: &Arc<[LockKey]>,
) -> Result<Vec<(Look, Vec<(usize, Failure)>)>, LockError> {
    let ask = |node: Arc<Node>| {
        let (keys, protocol) = (Arc::clone(keys), Arc::clone(&nodes.protocol));
        async move { look_on(&node, &keys, &*protocol).await }
    };
    let Answers { of: answers, failures } =
        ask_each(nodes, ask, |answers| answers.len() >= nodes.majority()).await;
    if answers.len() < nodes.majority() {
        return Err(out_of_reach(&nodes.of, failures));
    }
    let none = || (Look { nodes: nodes.of.len(), seen: Vec::new() }, failures.clone());
    let mut looks: Vec<_> = keys.iter().map(|_| none()).collect();
    for (node, of_keys) in answers {
        for ((look, failures), of_key) in looks.iter_mut().zip(of_keys) {
            match of_key {
                Ok(sighting) => look.seen.push((node, sighting)),
                Err(failure) => failures.push((node, failure)),
            }
        }
    }
    Ok(looks)
}

type OfKeys = Vec<Result<Option<Sighting>, Failure>>;

async fn look_on(node: &Arc<Node>, keys: &[LockKey], protocol: &dyn Protocol) -> Result<OfKeys, Failure> {
    let line = node.here().await?;
    let script = protocol.for_operators().look;
    let mut call = script.call_with_room(0, 3 + 2 * keys.len(), 64 + 128 * keys.len());
    for key in keys {
        call.arg(key.stored()).arg(protocol.channel(key));
    }
    let answers = line.connection.run::<Vec<Value>>(script, &call).await?;
    if answers.len() != keys.len() {
        return Err(unexpected());
    }
    let one = |answer: &Value| match answer {
        Value::Nil => Ok(None),
        Value::Array(answer) => protocol.sighting(answer).map(Some).ok_or_else(unexpected),
        error => answer_about_one(&line.connection, error).and(Err(unexpected())),
    };
    Ok(answers.iter().map(one).collect())
}

/// The answers of nodes to one question, by the numbers of the nodes.
struct Answers<T> {
    of: Vec<(usize, T)>,
    failures: Vec<(usize, Failure)>,
}

/// Asks each node. Once the answers have decided, the other nodes are waited for briefly, so that a node that hangs does not
/// hold the caller up.
///
/// # Cancel safety
/// If the future is dropped, a question that was sent may still be executed.
async fn ask_each<T, F>(
    nodes: &Nodes,
    ask: impl Fn(Arc<Node>) -> F,
    is_decided: impl Fn(&[(usize, T)]) -> bool,
) -> Answers<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let mut asked = JoinSet::new();
    for (number, node) in nodes.of.iter().enumerate() {
        let asking = ask(Arc::clone(node));
        asked.spawn(async move { (number, asking.await) });
    }
    let (sent, mut end) = (Instant::now(), Instant::FAR_FUTURE);
    let mut answers = Answers { of: Vec::new(), failures: Vec::new() };
    loop {
        let next = tokio::select! {
            biased;
            next = asked.join_next() => next,
            () = sleep_until(end) => None,
        };
        match next {
            None => break,
            // The runtime is shut down.
            Some(Err(_)) => {}
            Some(Ok((number, Ok(answer)))) => answers.of.push((number, answer)),
            Some(Ok((number, Err(failure)))) => answers.failures.push((number, failure)),
        }
        if is_decided(&answers.of) {
            let now = Instant::now();
            let taken = now.saturating_duration_since(sent);
            end = end.min(now + (taken * LATE_RELEASE_MULTIPLE).max(LAST_NODES_AT_LEAST));
        }
    }
    let has_answered = |number: &usize| {
        answers.of.iter().any(|(other, _)| other == number)
            || answers.failures.iter().any(|(other, _)| other == number)
    };
    let silent: Vec<_> = (0..nodes.of.len()).filter(|number| !has_answered(number)).collect();
    let waited: Duration = Instant::now().saturating_duration_since(sent);
    answers.failures.extend(silent.into_iter().map(|number| (number, Failure::timed_out(waited))));
    answers
}

pub(super) fn unexpected() -> Failure {
    Failure::Refused(error::unexpected("a question of an operator"))
}
