//! Asks a port what it speaks, over a connection of its own, once a store could not be reached.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

/// Upper bound on each step of a probe: the connection, one write, one read.
pub(in crate::backend) const PATIENCE: Duration = Duration::from_millis(500);

/// Connects; none where nothing accepts.
pub(in crate::backend) fn dial(host: &str, port: u16) -> Option<TcpStream> {
    let mut addresses = (host, port).to_socket_addrs().ok()?;
    let socket = addresses.find_map(|address| TcpStream::connect_timeout(&address, PATIENCE).ok())?;
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    socket.set_write_timeout(Some(PATIENCE)).ok()?;
    Some(socket)
}

/// What came back on a question that is not TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend) enum Answer {
    /// An answer without TLS.
    Plain,
    /// A record of TLS.
    Tls,
    /// The end of the connection: the port may be one for TLS, and a server that has reached its limit of connections closes
    /// as well.
    Closed,
    /// Nothing within [`PATIENCE`].
    Silence,
}

/// Asks `question`, which every server of the store answers, if only by an error.
pub(in crate::backend) fn ask(mut socket: TcpStream, question: &[u8]) -> Answer {
    let mut answer = [0; 2];
    match socket.write_all(question).and_then(|()| socket.read_exact(&mut answer)) {
        // A handshake or an alert (RFC 8446, section 5.1).
        Ok(()) if matches!(answer, [0x15 | 0x16, 3]) => Answer::Tls,
        Ok(()) => Answer::Plain,
        Err(error) if is_silence(&error) => Answer::Silence,
        Err(_) => Answer::Closed,
    }
}

/// Whether nothing came within the time limit of a socket.
pub(super) fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
