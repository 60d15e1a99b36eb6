//! One attempt at a lock: ask, wait in the queue, enter.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use redis::{FromRedisValue, ParsingError, RedisWrite, Value};

use super::{
    connection::Connection,
    error::{self, Failure},
    inbox::{Letter, Letters},
    lease::RedisLease,
    link::Links,
    names,
    place::{self, Place, Push},
    scripts,
};
use crate::{
    FencingToken, LockError, OwnerToken,
    backend::{Acquire, Acquired, Grant, Held, LeaseId, Wait},
    clock::{self, Instant},
    validity::{backoff, min_validity, valid_until},
};

/// How an attempt ended without an error.
pub(super) enum Ended {
    With(Acquired),
    /// The place was lost; a new attempt begins at the end of the queue.
    Gone,
}

/// An owner token, from before the first byte until the grant is handed on; dropped earlier, what it may have left on
/// the server is removed in the background.
pub(super) struct Attempt<'a> {
    request: &'a Acquire,
    links: &'a Arc<Links>,
    owner: OwnerToken,
    /// When the last request was sent that could have taken the lock.
    last_sent: Instant,
    /// Something may be on the server.
    open: bool,
    unanswered_on: Option<Arc<Connection>>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(request: &'a Acquire, links: &'a Arc<Links>) -> Self {
        Self {
            request,
            links,
            owner: OwnerToken::random(),
            last_sent: Instant::now(),
            open: false,
            unanswered_on: None,
        }
    }

    pub(super) async fn run(mut self) -> Result<Ended, LockError> {
        let connection = self.links.here().await.map_err(Failure::into_error)?;
        // Also for one that does not wait: as the holder it is told there that others do.
        let address =
            Address::on(connection, self.request.key.prefix()).await.map_err(Failure::into_error)?;
        if self.request.wait == Wait::No {
            return Ok(
                match self.ask_first(&address.connection, "try", None).await.map_err(Failure::into_error)? {
                    (sent, Answer::Granted { fence, others_wait }) => {
                        self.granted(fence, others_wait, valid_until(sent, self.request.ttl))
                    }
                    (_, Answer::Held { pttl_ms } | Answer::Waiting { pttl_ms, .. }) => {
                        self.open = false;
                        let holder_remaining = u64::try_from(pttl_ms).ok().map(Duration::from_millis);
                        Ended::With(Acquired::Busy { holder_remaining })
                    }
                    (_, Answer::Gone) => Ended::Gone,
                },
            );
        }
        let answer =
            self.ask_first(&address.connection, "join", Some(&address)).await.map_err(Failure::into_error)?;
        match answer {
            (sent, Answer::Granted { fence, others_wait }) => {
                Ok(self.granted(fence, others_wait, valid_until(sent, self.request.ttl)))
            }
            (sent, Answer::Waiting { seen, rank, pttl_ms }) => {
                self.request.progress.heard();
                let place = Place::new(sent, Instant::now(), seen, rank, pttl_ms);
                // Boxed, so that whoever finds the lock free need not have room for it.
                Box::pin(self.wait(address, place)).await
            }
            (_, Answer::Held { .. } | Answer::Gone) => Err(error::unexpected("an acquisition")),
        }
    }

    /// Waits in the queue for a push, looking from time to time.
    async fn wait(&mut self, mut address: Address, mut place: Place) -> Result<Ended, LockError> {
        // None when the connection is gone, and pushes with it.
        let mut letters = Some(address.listen());
        let end = self.request.wait.end();
        let mut heard = Instant::now();
        let mut failures = 0;
        let mut look_at = place.next_poll(heard);
        loop {
            tokio::select! {
                biased;
                letter = next(&mut letters), if letters.is_some() => match letter {
                    Some(Letter::Granted { fence, px, others_wait }) => match place.judge(fence, px) {
                        Push::Stale => continue,
                        Push::ValidUntil(until) => {
                            let enough = Instant::now() + min_validity(self.request.ttl) <= until;
                            // A lease that is not renewed has to have its whole length.
                            if enough && self.request.renews {
                                return Ok(self.granted(fence, others_wait, until));
                            }
                            // Ours, but not for long enough: claim it first.
                        }
                    },
                    Some(Letter::Free) => {
                        look_at = look_at.min(Instant::now() + place::OPEN_FOR);
                        continue;
                    }
                    None => letters = None,
                },
                () = clock::sleep_until(look_at.min(end)) => {}
            }
            // The last look, at the end of the wait, is worth it: the lock may be ours already.
            let last = end.has_passed();
            match self.look(&mut address, &mut letters).await {
                Ok((sent, Answer::Granted { fence, others_wait })) => {
                    return Ok(self.granted(fence, others_wait, valid_until(sent, self.request.ttl)));
                }
                Ok((sent, Answer::Waiting { seen, rank, pttl_ms })) => {
                    self.request.progress.heard();
                    (heard, failures) = (Instant::now(), 0);
                    place.update(Place::new(sent, heard, seen, rank, pttl_ms));
                    look_at = place.next_poll(heard);
                }
                Ok((_, Answer::Gone)) => {
                    self.open = false;
                    return Ok(Ended::Gone);
                }
                Ok((_, Answer::Held { .. })) => return Err(error::unexpected("a look at the queue")),
                // The place lasts for a while; an outage that is shorter costs nothing.
                Err(failure) if last || heard + place::STALE <= Instant::now() => {
                    return Err(failure.into_error());
                }
                Err(failure) => {
                    let error = failure.into_error();
                    self.request.progress.trouble(&error);
                    tracing::debug!(key = %self.request.key, %error, "looking again");
                    look_at = Instant::now() + backoff(failures);
                    failures += 1;
                }
            }
            if last {
                return Ok(Ended::With(Acquired::Busy {
                    holder_remaining: place.holder_remaining(Instant::now()),
                }));
            }
        }
    }

    /// Refreshes the place, on a new connection if the old one is gone.
    async fn look(
        &mut self,
        address: &mut Address,
        letters: &mut Option<Letters>,
    ) -> Result<(Instant, Answer), Failure> {
        if !address.connection.is_usable() {
            let connection = self.links.here().await?;
            *address = Address::on(connection, self.request.key.prefix()).await?;
            *letters = Some(address.listen());
        }
        self.ask(&address.connection, "poll", Some(address)).await
    }

    /// Asks for the lock for the first time: together with others where others are under way, else alone.
    async fn ask_first(
        &mut self,
        connection: &Arc<Connection>,
        mode: &str,
        address: Option<&Address>,
    ) -> Result<(Instant, Answer), Failure> {
        let group = connection.group();
        if group.is_due() {
            self.unanswered_on = Some(Arc::clone(connection));
            self.open = true;
            self.last_sent = Instant::now();
            let answer = group.acquire(&self.request.key, self.owner, names::millis(self.request.ttl)).await;
            if matches!(answer, Ok(_) | Err(Failure::Refused(_))) {
                self.unanswered_on = None;
                self.open = false;
            }
            match answer {
                Ok(Some(fence)) => {
                    return Ok((self.last_sent, Answer::Granted { fence, others_wait: false }));
                }
                // What one of a group may not do is refused to all of it; alone it says why.
                Ok(None) => {}
                Err(Failure::Refused(_)) if connection.is_usable() => {}
                Err(failure) => return Err(failure),
            }
        }
        let _alone = group.alone();
        self.ask(connection, mode, address).await
    }

    async fn ask(
        &mut self,
        connection: &Arc<Connection>,
        mode: &str,
        address: Option<&Address>,
    ) -> Result<(Instant, Answer), Failure> {
        let mut call = scripts::ACQUIRE.about(&self.request.key, self.links.process(), self.owner);
        call.arg(names::millis(self.request.ttl)).arg(mode);
        if let Some(address) = address {
            call.write_arg_fmt(address);
        }
        // A look neither makes a place nor, without one, takes the lock: executed late it does no harm.
        if mode != "poll" {
            self.unanswered_on = Some(Arc::clone(connection));
        }
        self.open = true;
        self.last_sent = Instant::now();
        let answer = connection.run::<Answer>(&scripts::ACQUIRE, &call).await;
        if matches!(answer, Ok(_) | Err(Failure::Refused(_))) {
            self.unanswered_on = None;
        }
        if mode != "poll" && matches!(answer, Err(Failure::Refused(_))) {
            self.open = false;
        }
        answer.map(|answer| (self.last_sent, answer))
    }

    fn granted(&mut self, fence: u64, others_wait: bool, valid_until: Instant) -> Ended {
        self.open = false;
        let token = FencingToken::from_micros(fence);
        let lease = Arc::new(self.lease(token, others_wait));
        Ended::With(Acquired::Granted(Grant { token, held: Held::Lease { lease, valid_until } }))
    }

    fn lease(&mut self, token: FencingToken, others_wait: bool) -> RedisLease {
        RedisLease {
            links: Arc::clone(self.links),
            id: LeaseId { key: self.request.key.clone(), owner: self.owner, token, ttl: self.request.ttl },
            unanswered_on: self.unanswered_on.take(),
            others_wait,
            release_unanswered: AtomicBool::new(false),
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.open {
            let until = self.last_sent + self.request.ttl;
            // No grant has this token; a release does not ask for it.
            let lease = self.lease(FencingToken::from_micros(0), false);
            self.request.cleanup.abandon(Arc::new(lease), until);
        }
    }
}

/// Where a waiter is told of its grant.
struct Address {
    connection: Arc<Connection>,
    number: u64,
    channel: Arc<str>,
}

impl Address {
    async fn on(connection: Arc<Connection>, prefix: &str) -> Result<Self, Failure> {
        let channel = connection.inbox(prefix).await?;
        Ok(Self { number: connection.next_number(), connection, channel })
    }

    fn listen(&self) -> Letters {
        self.connection.listen(self.number)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.channel)
    }
}

async fn next(letters: &mut Option<Letters>) -> Option<Letter> {
    letters.as_mut()?.next().await
}

/// What the acquire script answers.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Granted { fence: u64, others_wait: bool },
    Waiting { seen: u64, rank: u64, pttl_ms: i64 },
    Held { pttl_ms: i64 },
    Gone,
}

impl FromRedisValue for Answer {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let Value::Array(parts) = value else {
            return Ok(Self::Granted { fence: u64::from_redis_value(value)?, others_wait: false });
        };
        let mut parts = parts.into_iter();
        let mut next = || parts.next().ok_or_else(|| ParsingError::from("too short"));
        let word = String::from_redis_value(next()?)?;
        Ok(match word.as_str() {
            "granted" => Self::Granted {
                fence: u64::from_redis_value(next()?)?,
                others_wait: u8::from_redis_value(next()?)? == 1,
            },
            "waiting" => Self::Waiting {
                seen: u64::from_redis_value(next()?)?,
                rank: u64::from_redis_value(next()?)?,
                pttl_ms: i64::from_redis_value(next()?)?,
            },
            "held" => Self::Held { pttl_ms: i64::from_redis_value(next()?)? },
            "gone" => Self::Gone,
            _ => return Err("an unknown word".into()),
        })
    }
}
