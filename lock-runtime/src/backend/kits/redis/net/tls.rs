//! Connections with TLS: `rediss:`.

use std::{io, pin::pin, sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisError};
use rustls::pki_types::ServerName;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    super::{
        config::Config,
        error::{cannot_connect, refused_handshake, unfit},
    },
    port::Port,
    stream::{self, Dialled},
};
use crate::{
    LockError, LockErrorKind,
    backend::common::tls::{Certificates, Tls},
};

/// Time that a server may be silent before it is probed without TLS. A Redis server without TLS takes the handshake for
/// the beginning of a command, and waits for the end of the command.
const SILENCE: Duration = Duration::from_millis(500);

/// Connects with the current certificates in the files.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn connect(
    tls: &Tls,
    port: &Port,
    config: &Config,
    redis: &RedisConnectionInfo,
    settings: &AsyncConnectionConfig,
) -> Result<Dialled, LockError> {
    let address = config.address();
    let (host, number) = config.host_and_port().ok_or_else(|| {
        LockError::new(LockErrorKind::InvalidOptions, "the Redis URL names no host, which TLS needs")
    })?;
    let tcp = stream::tcp(host, number, config.info.tcp_settings()).await;
    let tcp = tcp.map_err(|error| cannot_connect(&address, error.into()))?;
    // The files are read after the connection is made, so that no file is read while nothing listens.
    let certificates = Arc::new(tls.read().await?);
    let stream = shake_hands(&certificates, host, tcp, port, config).await?;
    match stream::over(stream, redis, settings).await {
        Ok(made) => Ok(made),
        Err(error) => Err(why_not(certificates, config, port, error).await),
    }
}

async fn shake_hands(
    certificates: &Certificates,
    host: &str,
    stream: TcpStream,
    port: &Port,
    config: &Config,
) -> Result<TlsStream<TcpStream>, LockError> {
    let address = &config.address();
    let without_tls = || {
        let plain = config.schemes.plain;
        let what = format!("does not speak TLS; name its port for TLS, or write `{plain}://`");
        Err(port.wrong(unfit(address, &what)))
    };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| cannot_connect(address, io::Error::other(error).into()))?;
    let connector = TlsConnector::from(Arc::clone(&certificates.client));
    let mut handshake = pin!(connector.connect(name, stream));
    let shaken = if let Ok(shaken) = timeout(SILENCE, &mut handshake).await {
        shaken
    } else {
        tokio::select! {
            biased;
            shaken = &mut handshake => shaken,
            true = port.is_without_tls() => return without_tls(),
        }
    };
    match shaken {
        Ok(stream) => Ok(stream),
        Err(error) => {
            let told = refused_handshake(address, &error, Some(certificates));
            match told {
                Some(told) => Err(port.wrong(told)),
                None if port.is_without_tls().await => without_tls(),
                None => Err(cannot_connect(address, error.into())),
            }
        }
    }
}

/// Explains why Redis did not answer the greeting.
///
/// A server that refuses our certificate may report the refusal only after the handshake (RFC 8446, section 4.4.2.4),
/// and the connection may be reset before the report is read. A separate handshake then shows the refusal.
async fn why_not(
    certificates: Arc<Certificates>,
    config: &Config,
    port: &Port,
    error: RedisError,
) -> LockError {
    let address = config.address();
    if let Some(told) = refused_handshake(&address, &error, Some(&certificates)) {
        return port.wrong(told);
    }
    if error.is_io_error()
        && let Some(what) = port.what_is_wrong(certificates).await
    {
        return port.wrong(unfit(&address, &what));
    }
    cannot_connect(&address, error)
}
