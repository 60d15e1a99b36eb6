//! Why no server takes us. The driver says only that none does, so each of them is looked at once more.

use std::{
    io::{Read, Write},
    net::{TcpStream, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use super::{config::Config, handshake::Look, tls::Certificates};

/// How long a server may take to answer when it is looked at.
const PATIENCE: Duration = Duration::from_millis(500);

/// Why no server takes us.
pub(super) struct Reason {
    pub(super) text: String,
    /// It is so with all of them, and does not pass by itself.
    pub(super) lasts: bool,
}

/// Looks at each server; none where nothing is found that somebody has to change.
pub(super) async fn reason(config: &Config, certificates: Option<&Arc<Certificates>>) -> Option<Reason> {
    tokio::time::timeout(4 * PATIENCE, look_at_all(config, certificates)).await.ok().flatten()
}

async fn look_at_all(config: &Config, certificates: Option<&Arc<Certificates>>) -> Option<Reason> {
    let looks: Vec<_> = config
        .hosts()
        .into_iter()
        .map(|(host, port)| {
            let (host, certificates) = (host.to_owned(), certificates.cloned());
            tokio::task::spawn_blocking(move || look(&host, port, certificates.as_deref()))
        })
        .collect();
    let count = looks.len();
    let mut found = Vec::new();
    for look in looks {
        found.extend(look.await.ok().flatten());
    }
    let lasts = found.len() == count;
    found.into_iter().next().map(|text| Reason { text, lasts })
}

fn look(host: &str, port: u16, certificates: Option<&Certificates>) -> Option<String> {
    let socket = dial(host, port)?;
    let wrong = match certificates {
        // One that takes both on its port, as while its clients change over, has another reason.
        None => (speaks_tls(socket) && !speaks_without_tls(dial(host, port)?))
            .then(|| "wants TLS; write `zookeeper+tls://`, or name its port without TLS".to_owned()),
        Some(certificates) => match certificates.look(host, socket) {
            Look::Wrong(what) => Some(what),
            Look::Closed => speaks_without_tls(dial(host, port)?)
                .then(|| "does not speak TLS; name its port for TLS, or write `zookeeper://`".to_owned()),
            Look::Unclear => None,
        },
    };
    wrong.map(|what| format!("the server `{host}:{port}` {what}"))
}

fn dial(host: &str, port: u16) -> Option<TcpStream> {
    let mut addresses = (host, port).to_socket_addrs().ok()?;
    let socket = addresses.find_map(|address| TcpStream::connect_timeout(&address, PATIENCE).ok())?;
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    socket.set_write_timeout(Some(PATIENCE)).ok()?;
    Some(socket)
}

/// Begins a handshake by hand: who knows TLS goes on with it, or refuses it in its words.
fn speaks_tls(mut socket: TcpStream) -> bool {
    let mut hello = vec![0x16, 3, 1, 0, 0x35, 1, 0, 0, 0x31, 3, 3];
    hello.extend([0; 32]);
    // No session to resume, five suites that each server of the last decade knows, no compression, no extensions.
    hello.extend([0, 0, 10, 0xc0, 0x2f, 0xc0, 0x30, 0xc0, 0x2b, 0xc0, 0x2c, 0, 0x9c, 1, 0]);
    let mut answer = [0; 2];
    let answered = socket.write_all(&hello).and_then(|()| socket.read_exact(&mut answer));
    answered.is_ok() && is_tls(answer)
}

/// Whether an answer begins as a handshake or an alert does.
fn is_tls(answer: [u8; 2]) -> bool {
    matches!(answer, [0x15 | 0x16, 3])
}

/// Asks a question that each server answers, if only by saying that it must not.
fn speaks_without_tls(mut socket: TcpStream) -> bool {
    let mut answer = [0; 2];
    let answered = socket.write_all(b"ruok").and_then(|()| socket.read_exact(&mut answer));
    answered.is_ok() && !is_tls(answer)
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    /// Answers who begins a handshake, and who asks without TLS.
    fn server(handshake: &'static [u8], plain: &'static [u8]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (mut socket, mut begin) = (socket.expect("somebody came"), [0; 256]);
                let count = socket.read(&mut begin).expect("something was said");
                let answer = if begin[..count].starts_with(&[0x16]) { handshake } else { plain };
                let _ = socket.write_all(answer);
            }
        });
        port
    }

    #[test]
    fn only_a_port_that_takes_nothing_but_tls_is_said_to_want_it() {
        const ALERT: &[u8] = &[0x15, 3, 3, 0, 2, 2, 40];
        for (handshake, plain, wants) in
            [(ALERT, &b""[..], true), (ALERT, ALERT, true), (ALERT, b"imok", false), (b"", b"imok", false)]
        {
            let said = look("127.0.0.1", server(handshake, plain), None);
            assert_eq!(said.is_some(), wants, "{said:?}");
        }
    }
}
