//! Reads the message of a server that closes new connections. The driver writes before it reads, and so misses the
//! message.

use std::{io, time::Duration};

use redis::{ConnectionAddr, RedisError};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Upper bound on the wait for each step: the connection, a first line without a request, and the answer to a request.
const STEP_TIMEOUT: Duration = Duration::from_millis(100);
/// Length in bytes after which no more of a line is read.
const MAX_LINE_LENGTH: usize = 512;

/// The meaning of a server's first line.
#[derive(Debug)]
pub(super) enum Greeting {
    /// An error of Redis, for example that it allows no more clients.
    Refusal(RedisError),
    /// A line that Redis does not send.
    Foreign,
    /// No line, or a line that proves nothing.
    Nothing,
}

/// Connects to the server without TLS, and reads its first line; `None` if no connection can be made.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn of(address: &ConnectionAddr) -> Option<Greeting> {
    let heard = match address {
        ConnectionAddr::Tcp(host, port) => {
            let made = timeout(STEP_TIMEOUT, TcpStream::connect((host.as_str(), *port))).await;
            listen(made.ok()?.ok()?).await
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => listen(tokio::net::UnixStream::connect(path).await.ok()?).await,
        _ => return None,
    };
    Some(judge(&heard))
}

/// Reads the first line, and sends a request only if the server stays silent. A server that refuses clients has already
/// written its message and closed the connection. Such a server would answer a request with a reset, which could
/// discard the message.
async fn listen(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Vec<u8> {
    let mut heard = Vec::new();
    if timeout(STEP_TIMEOUT, read_line(&mut stream, &mut heard)).await.is_err() {
        let asked = async {
            stream.write_all(b"PING\r\n").await?;
            read_line(&mut stream, &mut heard).await
        };
        let _ = timeout(STEP_TIMEOUT, asked).await;
    }
    heard
}

async fn read_line(stream: &mut (impl AsyncRead + Unpin), into: &mut Vec<u8>) -> io::Result<()> {
    while into.len() < MAX_LINE_LENGTH && !into.contains(&b'\n') && stream.read_buf(into).await? > 0 {}
    Ok(())
}

fn judge(heard: &[u8]) -> Greeting {
    let line = heard.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
    match line.first() {
        Some(b'-') => match redis::parse_redis_value(line).and_then(redis::Value::extract_error) {
            Err(refusal) if line.ends_with(b"\r\n") => Greeting::Refusal(refusal),
            _ => Greeting::Nothing,
        },
        // A TLS record proves no foreign protocol, because Redis may speak TLS, too.
        None | Some(b'+' | 0x15 | 0x16) => Greeting::Nothing,
        Some(_) => Greeting::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_from_what_redis_does_not_say() {
        let refusal = judge(b"-ERR max number of clients reached\r\n");
        let Greeting::Refusal(error) = refusal else { panic!("{refusal:?}") };
        assert_eq!(error.detail(), Some("max number of clients reached"));
        for foreign in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"SSH-2.0-OpenSSH_9\r\n", b"E\0\0\0\x20SFATAL"]
        {
            assert!(matches!(judge(foreign), Greeting::Foreign));
        }
        for nothing in [&b""[..], b"+PONG\r\n", b"-ERR cut", b"\x15\x03\x01\0\x02"] {
            assert!(matches!(judge(nothing), Greeting::Nothing));
        }
    }
}
