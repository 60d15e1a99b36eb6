//! Makes connections: over a stream of our own, or by the driver for a client that the program has passed with its TLS.

use std::net::SocketAddr;

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, RedisConnectionInfo, RedisError, RedisFuture,
    io::AsyncDNSResolver,
};
use tokio::{task::JoinSet, time::timeout};

#[cfg(feature = "tls")]
use super::tls;
use super::{
    super::{config::Config, error},
    greeting::{self, Greeting},
    port::Port,
    stream::{self, Dialled},
};
#[cfg(test)]
use crate::simulated;
use crate::{
    LockError, LockErrorKind,
    backend::common::{client_name, threads::look_up},
};

/// How connections are made.
#[derive(Debug)]
pub(super) struct Dial {
    port: Port,
}

/// Looks up names for the driver, whose own resolver would run on the caller's runtime and delay that runtime's
/// shutdown.
struct Names;

impl AsyncDNSResolver for Names {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move { Ok(Box::new(look_up(host, port).await?.into_iter()) as _) })
    }
}

impl Dial {
    pub(super) fn new(config: &Config) -> Result<Self, LockError> {
        #[cfg(feature = "tls")]
        if let redis::ConnectionAddr::TcpTls { .. } = config.info.addr() {
            crate::backend::common::tls::install_provider()?;
        }
        Client::open(config.info.clone()).map_err(not_understood)?;
        Ok(Self { port: Port::new(config) })
    }

    /// Connects, without a time limit.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn connect(
        &self,
        config: &Config,
        settings: &AsyncConnectionConfig,
    ) -> Result<Dialled, LockError> {
        #[cfg(test)]
        if simulated::is_on() {
            return in_simulation(config, settings).await;
        }
        let redis = config.current().await?;
        let made = self.connect_with(config, redis, settings).await;
        // No refusal is permanent if the program may provide other credentials for the next connection.
        made.map_err(|error| if config.credentials.is_some() { error.into_passing() } else { error })
    }

    /// Connects to `what` within the time limit for a connection, and gives the connection a name. Nothing limits its
    /// calls.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn named(
        &self,
        config: &Config,
        settings: AsyncConnectionConfig,
        what: &str,
    ) -> Result<Dialled, LockError> {
        let limit = config.connect_timeout;
        let settings = settings.set_connection_timeout(Some(limit)).set_response_timeout(None);
        let connecting = async {
            let (mut driver, task) = self.connect(config, &settings).await?;
            let mut name = redis::cmd("HELLO");
            name.arg(3).arg("SETNAME").arg(client_name::of_this_process());
            // A connection without a name is used, too.
            let _ = name.exec_async(&mut driver).await;
            Ok((driver, task))
        };
        timeout(limit, connecting).await.unwrap_or_else(|_| {
            Err(LockError::backend(format!(
                "{what} at {} did not answer within {limit:?}; check address, port and firewall",
                config.address()
            )))
        })
    }

    async fn connect_with(
        &self,
        config: &Config,
        redis: RedisConnectionInfo,
        settings: &AsyncConnectionConfig,
    ) -> Result<Dialled, LockError> {
        let made = match &config.tls {
            // The connection is without TLS, or the program has passed a client, for which the driver makes the TLS
            // itself.
            None => {
                let made = match config.info.addr() {
                    ConnectionAddr::Tcp(host, port) => {
                        match stream::tcp(host, *port, config.info.tcp_settings()).await {
                            Ok(stream) => stream::over(stream, &redis, settings).await,
                            Err(error) => Err(error.into()),
                        }
                    }
                    #[cfg(unix)]
                    ConnectionAddr::Unix(path) => match tokio::net::UnixStream::connect(path).await {
                        Ok(stream) => stream::over(stream, &redis, settings).await,
                        Err(error) => Err(error.into()),
                    },
                    _ => {
                        let info = config.info.clone().set_redis_settings(redis);
                        let client = Client::open(info).map_err(not_understood)?;
                        let settings = settings.clone().set_dns_resolver(Names);
                        let driver = client.get_multiplexed_async_connection_with_config(&settings).await;
                        driver.map(|driver| (driver, JoinSet::new()))
                    }
                };
                match made {
                    Ok(made) => made,
                    Err(error) => return Err(self.why_not(config, error).await),
                }
            }
            // The driver would read all CAs of the system for each connection, on the caller's runtime and even if the
            // URL names other CAs. The driver has no revocation lists, and panics if several crypto providers are
            // compiled in and the program chose none.
            #[cfg(feature = "tls")]
            Some(tls) => tls::connect(tls, &self.port, config, &redis, settings).await?,
            #[cfg(not(feature = "tls"))]
            Some(tls) => match *tls {},
        };
        self.port.set_right();
        Ok(made)
    }

    /// Explains why the driver did not connect.
    async fn why_not(&self, config: &Config, error: RedisError) -> LockError {
        #[cfg(feature = "tls")]
        if let Some(told) = error::refused_handshake(&config.address(), &error, None) {
            return self.port.wrong(told);
        }
        let was_closed = error.is_connection_dropped() && !error.is_connection_refusal();
        if (was_closed || error.kind() == ErrorKind::Parse) && self.port.wants_tls().await {
            let what = format!("wants TLS; write `{}://`, or name its port without TLS", config.schemes.tls);
            return self.port.wrong(error::unfit(&config.address(), &what));
        }
        if was_closed {
            match greeting::of(config.info.addr()).await {
                Some(Greeting::Refusal(refusal)) => return error::cannot_connect(&config.address(), refusal),
                Some(Greeting::Foreign) => {
                    return self.port.wrong(error::unfit(&config.address(), error::NOT_REDIS));
                }
                Some(Greeting::Nothing) if !self.port.is_right() => {
                    let what = "closed the connection without an answer: does it speak Redis? Check address and port";
                    return error::unfit(&config.address(), what).with_source(error);
                }
                Some(Greeting::Nothing) | None => {}
            }
        }
        if error.kind() == ErrorKind::Parse {
            return self.port.wrong(error::unfit(&config.address(), error::NOT_REDIS));
        }
        error::cannot_connect(&config.address(), error)
    }
}

fn not_understood(error: RedisError) -> LockError {
    LockError::new(LockErrorKind::InvalidOptions, "the Redis settings are not understood").with_source(error)
}

#[cfg(test)]
async fn in_simulation(config: &Config, settings: &AsyncConnectionConfig) -> Result<Dialled, LockError> {
    let cannot = |error: RedisError| error::cannot_connect(&config.address(), error);
    let (host, port) = config.host_and_port().expect("a simulated server has an address");
    let stream = simulated::connect(host, port).await.map_err(|error| cannot(error.into()))?;
    let info = config.info.redis_settings();
    stream::over(stream, info, settings).await.map_err(cannot)
}
