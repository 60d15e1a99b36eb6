//! Finds out which protocol a port speaks, over a separate connection, after a store could not be reached.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

/// Upper bound on each step of a probe: the connection, one write, one read.
pub(in crate::backend) const STEP_TIMEOUT: Duration = Duration::from_millis(500);
/// Upper bound on a whole exchange over a connection.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection with a time limit: all reads and writes fail once [`TOTAL_TIMEOUT`] has passed since the connection was
/// made, however slowly the peer sends.
pub(in crate::backend) struct TimedStream {
    socket: TcpStream,
    end: Instant,
}

/// Connects; `None` if nothing accepts the connection.
pub(in crate::backend) fn dial(host: &str, port: u16) -> Option<TimedStream> {
    let mut addresses = (host, port).to_socket_addrs().ok()?;
    let socket = addresses.find_map(|address| TcpStream::connect_timeout(&address, STEP_TIMEOUT).ok())?;
    Some(TimedStream { socket, end: Instant::now() + TOTAL_TIMEOUT })
}

impl TimedStream {
    /// Returns the time limit of the next step; an error once no time is left.
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left.min(STEP_TIMEOUT))) }
    }
}

impl Read for TimedStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(into)
    }
}

impl Write for TimedStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// The answer to a request that was sent without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend) enum Answer {
    /// An answer without TLS.
    Plain,
    /// A TLS record.
    Tls,
    /// The end of the connection. The port may be for TLS, or the server may have reached its limit of connections.
    Closed,
    /// No answer within [`STEP_TIMEOUT`].
    Silence,
}

/// Sends `question`, and classifies the answer. Every server of the store must answer `question`, if only with an
/// error.
pub(in crate::backend) fn ask(mut stream: TimedStream, question: &[u8]) -> Answer {
    let mut answer = [0; 2];
    match stream.write_all(question).and_then(|()| stream.read_exact(&mut answer)) {
        // A handshake or an alert (RFC 8446, section 5.1).
        Ok(()) if matches!(answer, [0x15 | 0x16, 3]) => Answer::Tls,
        Ok(()) => Answer::Plain,
        Err(error) if is_silence(&error) => Answer::Silence,
        Err(_) => Answer::Closed,
    }
}

/// Returns whether the error means that a socket's time limit has passed.
pub(super) fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    #[test]
    fn a_peer_that_goes_on_slowly_does_not_hold_a_probe_up() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let peer = thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("it is asked");
            while socket.write_all(b".").is_ok() {
                thread::sleep(STEP_TIMEOUT / 5);
            }
        });
        let began = Instant::now();
        let mut stream = dial("127.0.0.1", port).expect("it listens");
        let error = stream.read_exact(&mut [0; 1000]).expect_err("it never ends");
        assert!(is_silence(&error), "{error}");
        assert!(began.elapsed() < 2 * TOTAL_TIMEOUT, "{:?}", began.elapsed());
        drop(stream);
        peer.join().expect("it ends with the connection");
    }
}
