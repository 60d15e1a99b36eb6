//! One Redis Sentinel: what it says about the primary, and its announcements of another primary.

use std::{collections::HashMap, time::Duration};

use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, FromRedisValue, PushInfo, PushKind, RedisError,
    aio::MultiplexedConnection,
};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{
    super::{config::Config, error},
    dial::Dial,
    stream::Dialled,
    verdict::{Answer, Named},
};
use crate::{LockError, LockErrorKind, time::clock::Instant};

/// The channel on which a Sentinel announces that another server is the primary.
const ANNOUNCEMENTS: &str = "+switch-master";
/// Time after which a Sentinel whose announcements are no longer received is connected to again.
const RETRY: Duration = Duration::from_secs(1);
/// Pause between two checks whether a Sentinel still answers.
const CHECK: Duration = Duration::from_secs(1);
/// Time after the begin of a subscription until the Sentinels are asked for what was announced before: the
/// subscriptions at the other Sentinels begin meanwhile, and share the question.
const SETTLING: Duration = Duration::from_millis(200);

/// A Sentinel, by its address and credentials.
#[derive(Debug)]
pub(super) struct Sentinel {
    config: Config,
    dial: Dial,
}

/// An event at a watched Sentinel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// From now on, announcements are received.
    Heard,
    /// From now on, announcements are missed.
    Unheard,
    /// Announcements from before this moment were missed.
    Missed(Instant),
    /// Another server was announced as the primary.
    Announced,
}

impl Sentinel {
    pub(super) fn new(config: Config) -> Result<Self, LockError> {
        Ok(Self { dial: Dial::new(&config)?, config })
    }

    /// Asks for the primary of this name.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn ask(&self, name: &str) -> Result<Answer, LockError> {
        let settings = AsyncConnectionConfig::new();
        let (driver, _task) = self.connect(settings).await?;
        let asked = async {
            // The epoch is asked for first, so that it is never newer than the address. In the last phase of a failover,
            // the Sentinel that leads it names the new primary only in its answer to the second question.
            let (facts, address) = tokio::join!(
                call::<HashMap<String, String>>(&driver, "MASTER", name),
                call::<Option<(String, u16)>>(&driver, "GET-MASTER-ADDR-BY-NAME", name),
            );
            let Some(address) = address? else { return Ok(Answer::UnknownName) };
            let epoch = facts?.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or_default();
            Ok(Answer::Primary(Named { address, epoch }))
        };
        let limit = self.config.response_timeout;
        let answer = timeout(limit, asked).await.map_err(|_| {
            LockError::backend(format!(
                "the Redis Sentinel at {} did not answer within {limit:?}",
                self.config.address()
            ))
        })?;
        answer.map_err(|error| self.explain(error))
    }

    pub(super) fn address(&self) -> String {
        self.config.address()
    }

    /// Returns what the Sentinel shows of the primary of this name.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn show(&self, name: &str) -> Result<HashMap<String, String>, LockError> {
        let (driver, _task) = self.connect(AsyncConnectionConfig::new()).await?;
        let shown = timeout(self.config.response_timeout, call(&driver, "MASTER", name)).await;
        let silent = || LockError::backend("the Redis Sentinel did not answer in time");
        shown.map_err(|_| silent())?.map_err(|error| self.explain(error))
    }

    /// Watches the Sentinel until the future is dropped.
    ///
    /// # Cancel safety
    /// If the future is dropped, the last [`Event::Heard`] may have no [`Event::Unheard`].
    pub(super) async fn watch(&self, name: &str, report: &(dyn Fn(Event) + Send + Sync)) {
        loop {
            let error = self.listen(name, report).await;
            let address = self.config.address();
            tracing::debug!(address, %error, "the announcements of a Redis Sentinel are not received");
            sleep(RETRY).await;
        }
    }

    /// Reports the announcements of the Sentinel until its connection ends. Returns why the connection ended.
    async fn listen(&self, name: &str, report: &(dyn Fn(Event) + Send + Sync)) -> LockError {
        let (push, mut pushes) = mpsc::unbounded_channel();
        let settings = AsyncConnectionConfig::new().set_push_sender(push);
        let (mut driver, _task) = match self.connect(settings).await {
            Ok(made) => made,
            Err(error) => return error,
        };
        let limit = self.config.response_timeout;
        let silent = || LockError::backend(format!("the Redis Sentinel did not answer within {limit:?}"));
        match timeout(limit, driver.subscribe(ANNOUNCEMENTS)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return self.explain(error),
            Err(_) => return silent(),
        }
        let began = Instant::now();
        let mut missed = Some(began);
        report(Event::Heard);
        let end = loop {
            if let Some(when) = missed.take_if(|began| (*began + SETTLING).has_passed()) {
                report(Event::Missed(when));
            }
            match timeout(if missed.is_some() { SETTLING } else { CHECK }, pushes.recv()).await {
                Ok(Some(push)) if push.kind == PushKind::Disconnection => {
                    break LockError::backend("the connection to the Redis Sentinel ended");
                }
                Ok(Some(push)) => {
                    if is_about(&push, name) {
                        report(Event::Announced);
                    }
                }
                Ok(None) => break LockError::backend("the connection to the Redis Sentinel ended"),
                Err(_) => match timeout(limit, redis::cmd("PING").exec_async(&mut driver)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => break self.explain(error),
                    Err(_) => break silent(),
                },
            }
        };
        report(Event::Unheard);
        end
    }

    async fn connect(&self, settings: AsyncConnectionConfig) -> Result<Dialled, LockError> {
        let made = self.dial.named(&self.config, settings, "the Redis Sentinel").await;
        made.map_err(|error| {
            let cause = error.cause().and_then(|cause| cause.downcast_ref::<RedisError>());
            if cause.is_some_and(are_refused_credentials) {
                return error.saying(self.refused_credentials());
            }
            error
        })
    }

    fn refused_credentials(&self) -> String {
        format!(
            "the Redis Sentinel at {} refused the credentials; check `sentinel_user` and `sentinel_password` in the URL, \
             which are not those of the servers",
            self.config.address()
        )
    }

    fn explain(&self, error: RedisError) -> LockError {
        let address = self.config.address();
        if are_refused_credentials(&error) {
            return LockError::backend(self.refused_credentials()).into_permanent().with_source(error);
        }
        if error.detail().is_some_and(|detail| detail.contains("unknown command")) {
            let message = format!(
                "the server at {address} is no Redis Sentinel; the URL names the Sentinels, not the servers: for a server \
                 alone write `redis://{address}`"
            );
            return LockError::new(LockErrorKind::Unsupported, message);
        }
        if error.code() == Some("NOPERM") {
            let message = format!(
                "the user at the Redis Sentinel at {address} may not do what is needed; compare its ACL with the one in \
                 the documentation of the store"
            );
            return LockError::backend(message).into_permanent().with_source(error);
        }
        let error = error::explain(error);
        let message = format!("the Redis Sentinel at {address}: {}", error.message());
        error.saying(message)
    }
}

/// Asks one question about the primary of this name.
async fn call<T: FromRedisValue>(
    driver: &MultiplexedConnection,
    what: &str,
    name: &str,
) -> Result<T, RedisError> {
    let mut question = Cmd::new();
    question.arg("SENTINEL").arg(what).arg(name);
    question.query_async(&mut driver.clone()).await
}

/// Returns whether an announcement is about the primary of this name: `<name> <old address> <new address>`.
fn is_about(push: &PushInfo, name: &str) -> bool {
    let payload = push.data.get(1).and_then(|payload| String::from_redis_value_ref(payload).ok());
    push.kind == PushKind::Message && payload.is_some_and(|text| text.split(' ').next() == Some(name))
}

fn are_refused_credentials(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
}
