//! Finds out why no server accepts us. The driver reports no reasons, so each server is probed once more.

use std::sync::Arc;

use super::{
    config::Config,
    tls::{Certificates, QUESTION},
};
use crate::backend::common::{
    threads,
    tls::{
        probe::{self, Answer, STEP_TIMEOUT},
        speaks_tls,
    },
};

/// Why no server accepts us.
pub(super) struct Reason {
    pub(super) text: String,
    /// Whether the reason is permanent. In the result for all servers, whether each server has a permanent reason.
    pub(super) lasts: bool,
}

/// Probes each server; `None` if nothing is found that an operator has to change.
pub(super) async fn reason(config: &Config, certificates: Option<&Arc<Certificates>>) -> Option<Reason> {
    tokio::time::timeout(4 * STEP_TIMEOUT, look_at_all(config, certificates)).await.ok().flatten()
}

async fn look_at_all(config: &Config, certificates: Option<&Arc<Certificates>>) -> Option<Reason> {
    let looks: Vec<_> = config
        .hosts()
        .into_iter()
        .map(|(host, port)| {
            let (host, certificates) = (host.to_owned(), certificates.cloned());
            threads::run(move || look(&host, port, certificates.as_deref()))
        })
        .collect();
    let count = looks.len();
    let mut found = Vec::new();
    for look in looks {
        found.extend(look.await.ok().flatten());
    }
    let lasts = found.len() == count && found.iter().all(|reason| reason.lasts);
    found.into_iter().next().map(|reason| Reason { lasts, ..reason })
}

/// Probes one server, and returns what an operator has to change.
fn look(host: &str, port: u16, certificates: Option<&Certificates>) -> Option<Reason> {
    let (what, lasts) = match certificates {
        Some(certificates) => (certificates.look(host, port)?, true),
        None => look_without_tls(host, port)?,
    };
    Some(Reason { text: format!("the server `{host}:{port}` {what}"), lasts })
}

/// Returns why a server does not accept us without TLS, and whether the reason is permanent.
///
/// ZooKeeper's port for TLS is silent as long as a request is shorter than the header of a TLS record, and closes the
/// connection after a longer one, without an alert (seen with 3.8). A server that has reached its connection limit
/// closes connections at once, so only a handshake tells the two cases apart.
fn look_without_tls(host: &str, port: u16) -> Option<(String, bool)> {
    const REMEDY: &str = "write `zookeeper+tls://`, or name its port without TLS";
    let wants_tls = || format!("wants TLS; {REMEDY}");
    match probe::ask(probe::dial(host, port)?, QUESTION) {
        Answer::Tls => Some((wants_tls(), true)),
        Answer::Closed | Answer::Silence if speaks_tls(host, probe::dial(host, port)?) => {
            Some((wants_tls(), true))
        }
        // The silence may be that of an overloaded server, and pass.
        Answer::Silence if cfg!(not(feature = "tls")) => {
            Some((format!("is silent; if it wants TLS, {REMEDY}"), false))
        }
        // A port that accepts connections with and without TLS, as during a migration, fails for another reason.
        Answer::Plain | Answer::Closed | Answer::Silence => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use super::*;

    /// Starts a server that answers a handshake with `handshake`, and any other request with `plain`.
    fn server(handshake: &'static [u8], plain: &'static [u8]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (mut socket, mut begin) = (socket.expect("a client came"), [0; 4096]);
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
        for (handshake, plain, wants) in [
            (ALERT, &b""[..], cfg!(feature = "tls")),
            (ALERT, ALERT, true),
            (ALERT, b"imok", false),
            (b"", b"imok", false),
            // Like a server that has reached its connection limit.
            (b"", b"", false),
        ] {
            let said = look("127.0.0.1", server(handshake, plain), None).map(|reason| reason.text);
            assert_eq!(said.is_some(), wants, "{said:?}");
        }
    }
}
