//! Makes connections: by the driver, or over a TLS stream of our own.

use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, aio::MultiplexedConnection};
use tokio::task::AbortHandle;

#[cfg(feature = "tls")]
use super::tls;
use super::{
    super::{config::Config, error},
    port::Port,
};
#[cfg(feature = "tls")]
use crate::backend::common::tls::Trust;
#[cfg(test)]
use crate::simulated;
use crate::{LockError, LockErrorKind, backend::common::tls::Tls};

/// How connections are made.
#[derive(Debug)]
pub(super) struct Dial {
    way: Way,
    port: Port,
}

#[derive(Debug)]
enum Way {
    /// By the driver, including its TLS for a given client.
    Driver(Client),
    /// Over a TLS stream of our own.
    ///
    /// The driver would read all CAs of the system for each connection, on the caller's runtime and even where they
    /// are not wanted. It has no revocation lists, and panics if several crypto providers are compiled in and the
    /// program chose none.
    Tls(Tls),
}

/// The task of a connection, aborted on drop.
pub(super) struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Dial {
    pub(super) fn new(config: &Config) -> Result<Self, LockError> {
        #[cfg(feature = "tls")]
        if let redis::ConnectionAddr::TcpTls { .. } = config.info.addr() {
            crate::backend::common::tls::install_provider();
        }
        let way = match config.tls.clone().map(Way::Tls) {
            Some(way) => way,
            None => Way::Driver(Client::open(config.info.clone()).map_err(|error| {
                LockError::new(LockErrorKind::InvalidOptions, "the Redis settings are not understood")
                    .with_source(error)
            })?),
        };
        Ok(Self { way, port: Port::new(config) })
    }

    /// Connects, without a time limit.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn connect(
        &self,
        config: &Config,
        settings: &AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, Option<Task>), LockError> {
        #[cfg(test)]
        if simulated::is_on() {
            return in_simulation(config, settings).await;
        }
        let made = match &self.way {
            Way::Driver(client) => {
                match client.get_multiplexed_async_connection_with_config(settings).await {
                    Ok(driver) => (driver, None),
                    Err(error) => return Err(self.why_not(config, error).await),
                }
            }
            #[cfg(feature = "tls")]
            Way::Tls(tls) => {
                let (driver, task) = tls::connect(tls, &self.port, config, settings).await?;
                (driver, Some(Task(task)))
            }
            #[cfg(not(feature = "tls"))]
            Way::Tls(tls) => match *tls {},
        };
        self.port.set_right();
        Ok(made)
    }

    /// Explains why the driver did not connect.
    async fn why_not(&self, config: &Config, error: RedisError) -> LockError {
        #[cfg(feature = "tls")]
        if let Some(told) = error::refused_handshake(&config.address(), &error, Trust::Client, false) {
            return self.port.wrong(told);
        }
        let was_closed = error.is_connection_dropped() && !error.is_connection_refusal();
        if (was_closed || error.kind() == ErrorKind::Parse) && self.port.wants_tls().await {
            let what = format!("wants TLS; write `{}://`, or name its port without TLS", config.schemes.tls);
            return self.port.wrong(error::unfit(&config.address(), &what));
        }
        error::cannot_connect(&config.address(), error)
    }
}

#[cfg(test)]
async fn in_simulation(
    config: &Config,
    settings: &AsyncConnectionConfig,
) -> Result<(MultiplexedConnection, Option<Task>), LockError> {
    let cannot = |error: RedisError| error::cannot_connect(&config.address(), error);
    let (host, port) = config.host_and_port().expect("a simulated server has an address");
    let stream = simulated::connect(host, port).await.map_err(|error| cannot(error.into()))?;
    let info = config.info.redis_settings();
    let made = MultiplexedConnection::new_with_config(info, stream, settings.clone()).await;
    let (driver, task) = made.map_err(cannot)?;
    Ok((driver, Some(Task(tokio::spawn(task).abort_handle()))))
}
