#![doc = include_str!("docs.md")]

mod answer;
mod attempt;
mod config;
mod connection;
mod error;
mod fitness;
mod foreign;
mod group;
mod inbox;
mod lease;
mod link;
mod names;
mod place;
mod scripts;
mod server;
mod server_clock;

use std::{fmt, sync::Arc, time::Duration};

use ::redis::{Cmd, RedisWrite};

use self::{
    attempt::{Attempt, Ended},
    config::Config,
    error::Failure,
    link::Links,
};
use crate::{
    LockError, LockErrorKind,
    backend::{Acquire, Acquired, Backend, BoxFuture, Capabilities, LeaseId, Mode, Renew, Renewal, Wait},
    time::{clock::Instant, deadline::valid_until},
};

/// So many leases are renewed by one call; more would hold up the server for too long.
const RENEWALS_PER_CALL: usize = 128;

/// One logical Redis server.
///
/// Clones use the same connections. See the [module](self) for what it needs and promises.
#[derive(Clone)]
pub struct Redis {
    links: Arc<Links>,
}

impl Redis {
    /// Connects to `redis://[user[:password]@]host[:port][/db][?setting=value&…]` or `redis+unix:///path`.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) for a URL that is not understood,
    /// [`Backend`](crate::LockErrorKind::Backend) when the server does not answer or refuses us.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let redis = Self::connect_lazy(url)?;
        redis.ping().await?;
        Ok(redis)
    }

    /// As [`connect`](Self::connect), but connects at the first use. A server that cannot be reached, refuses us or is not
    /// fit for locks is an error of what is asked of it then.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) for a URL that is not understood.
    pub fn connect_lazy(url: &str) -> Result<Self, LockError> {
        Self::with_config(Config::from_url(url)?)
    }

    /// Uses the address and the credentials of a client of the `redis` crate, with connections of its own.
    ///
    /// # Errors
    /// [`Backend`](crate::LockErrorKind::Backend) when the server does not answer or refuses us.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn from_client(client: &::redis::Client) -> Result<Self, LockError> {
        let redis = Self::with_config(Config::new(client.get_connection_info().clone()))?;
        redis.ping().await?;
        Ok(redis)
    }

    fn with_config(config: Config) -> Result<Self, LockError> {
        Ok(Self { links: Arc::new(Links::new(config)?) })
    }
}

impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new().shared_between_processes().fair()
    }

    fn names(&self) -> Vec<String> {
        let (address, db) = self.links.config().store();
        // One server may have several addresses.
        let server = self.links.run_id().map(|run_id| format!("redis {run_id}/{db}"));
        server.into_iter().chain([format!("redis://{address}/{db}")]).collect()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async {
            let answer = match self.links.here().await {
                Ok(connection) => connection.call::<::redis::Value>(&::redis::cmd("PING")).await,
                Err(failure) => Err(failure),
            };
            answer.map(drop).map_err(Failure::into_error)
        })
    }

    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>> {
        let links = Arc::clone(&self.links);
        match request.mode {
            Mode::Exclusive => {}
        }
        Box::pin(async move {
            let is_over = || request.wait != Wait::No && request.wait.end().has_passed();
            let mut repeated = false;
            loop {
                match Attempt::new(&request, &links).run().await {
                    Ok(Ended::With(answer)) => return Ok(answer),
                    Ok(Ended::Gone) if is_over() => return Ok(Acquired::busy(None)),
                    Ok(Ended::Gone) => {}
                    // The connection was of no use, perhaps for long: once more over a new one.
                    Err(Failure::GivenUp(_)) if !repeated && !is_over() => repeated = true,
                    Err(failure) => {
                        let error = failure.into_error();
                        if error.kind() != LockErrorKind::InvalidKey {
                            return Err(error);
                        }
                        // Boxed, because it is rare and needs much room.
                        return Err(Box::pin(links.of_wrong_type(&request.key)).await.unwrap_or(error));
                    }
                }
            }
        })
    }

    fn renewal(&self) -> Option<&dyn Renew> {
        Some(self)
    }
}

impl Renew for Redis {
    fn renew<'a>(&'a self, due: &'a [LeaseId]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            // One prefix in a call: a user who may not touch another any more loses only the locks under that.
            let terms = |number: &usize| (due[*number].ttl, due[*number].key.prefix());
            let mut numbers: Vec<usize> = (0..due.len()).collect();
            numbers.sort_by(|a, b| terms(a).cmp(&terms(b)));
            let alike = numbers.chunk_by(|a, b| terms(a) == terms(b));
            let parts: Vec<&[usize]> = alike.flat_map(|alike| alike.chunks(RENEWALS_PER_CALL)).collect();
            let sent = Instant::now();
            // All are on their way before one is answered.
            let calls: Vec<_> = parts
                .iter()
                .map(|part| {
                    let ids: Vec<&LeaseId> = part.iter().map(|number| &due[*number]).collect();
                    let (links, call) = (Arc::clone(&self.links), self.renewals(&ids));
                    Call(tokio::spawn(async move { send_renewals(&links, &call).await }))
                })
                .collect();
            let mut answers: Vec<Option<Renewal>> = (0..due.len()).map(|_| None).collect();
            for (mut call, part) in calls.into_iter().zip(parts) {
                let refused = match (&mut call.0).await {
                    Ok(answer) => answer.map_err(Failure::into_error),
                    Err(_) => Err(error::unexpected("a renewal")),
                };
                let ttl = due[part[0]].ttl;
                for (number, answer) in part.iter().zip(renewed(part.len(), ttl, sent, refused)) {
                    answers[*number] = Some(answer);
                }
            }
            answers.into_iter().map(|answer| answer.expect("each is in one part")).collect()
        })
    }
}

/// A call of its own task, which ends with it: unanswered at its end, the connection is known to be mute.
struct Call<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Redis {
    /// The call that renews leases of one length.
    fn renewals(&self, part: &[&LeaseId]) -> Cmd {
        let mut call = scripts::RENEW.call_with_room(part.len(), 4 + 2 * part.len(), 64 + 160 * part.len());
        for id in part {
            call.arg(id.key.stored());
        }
        call.arg(part.first().map_or(0, |id| names::millis(id.ttl)));
        for id in part {
            call.write_arg_fmt(names::grant(self.links.process(), id.owner, id.token.micros()));
        }
        call
    }
}

async fn send_renewals(links: &Arc<Links>, call: &Cmd) -> Result<Vec<usize>, Failure> {
    match links.here().await?.run(&scripts::RENEW, call).await {
        // The connection was of no use, perhaps for long: once more over a new one.
        Err(Failure::Disconnected(_) | Failure::GivenUp(_)) => {
            links.here().await?.run(&scripts::RENEW, call).await
        }
        answer => answer,
    }
}

/// What became of each of `count` leases of a call, of which the script names those that are not ours any more.
fn renewed(
    count: usize,
    ttl: Duration,
    sent: Instant,
    refused: Result<Vec<usize>, LockError>,
) -> impl Iterator<Item = Renewal> {
    let are_numbers = |refused: &[usize]| {
        refused.is_sorted_by(|a, b| a < b) && refused.iter().all(|number| (1..=count).contains(number))
    };
    let (refused, unknown) = match refused {
        Ok(refused) if are_numbers(&refused) => (refused, None),
        Ok(_) => (Vec::new(), Some(error::unexpected("a renewal"))),
        Err(error) => (Vec::new(), Some(error)),
    };
    let mut refused = refused.into_iter().peekable();
    (1..=count).map(move |number| match &unknown {
        Some(error) => Renewal::Unknown(error.clone()),
        None if refused.next_if_eq(&number).is_some() => Renewal::NotHeld,
        None => Renewal::Renewed(valid_until(sent, ttl)),
    })
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("address", &self.links.config().address()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_script_names_is_not_held_and_what_it_cannot_mean_is_unknown() {
        let words = |answer| -> Vec<&str> {
            renewed(3, Duration::from_secs(30), Instant::now(), answer)
                .map(|renewal| match renewal {
                    Renewal::Renewed(_) => "renewed",
                    Renewal::NotHeld => "not held",
                    Renewal::Unknown(_) => "unknown",
                })
                .collect()
        };
        assert_eq!(words(Ok(vec![])), ["renewed"; 3]);
        assert_eq!(words(Ok(vec![1, 3])), ["not held", "renewed", "not held"]);
        for wrong in [vec![0], vec![4], vec![2, 1], vec![2, 2]] {
            assert_eq!(words(Ok(wrong.clone())), ["unknown"; 3], "{wrong:?}");
        }
        assert_eq!(words(Err(error::unexpected("a renewal"))), ["unknown"; 3]);
    }
}
