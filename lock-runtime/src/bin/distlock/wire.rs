//! The messages between `distlock` and its keeper, over a pair of sockets.

use std::{
    fmt,
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::{
    io::{FdFlags, fcntl_setfd},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
};

use crate::plan::Until;

/// What the command learns of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The fencing token.
    pub(crate) token: u64,
    /// The beginning of the period that the command runs, in milliseconds since the beginning of 1970.
    pub(crate) period: Option<u64>,
}

/// A message of `distlock` to the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// When the command is ended.
    Until(Until),
    /// Start the command.
    Start(Grant),
    /// Send this signal to the command's group.
    Signal(i32),
    /// There will be no command.
    Quit,
}

/// A message of the keeper to `distlock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The command's group. The command has not started yet.
    Group(i32),
    /// The command could not be started, for this reason of the system.
    NotStarted(i32),
    /// The command is being ended, because the lock is lost.
    Ending,
    /// The command is stopped.
    Stopped,
    /// The command has ended with this status.
    Exited(i32),
    /// The command was ended by this signal.
    Killed(i32),
    /// Nothing is left of the group, or nothing that a signal can end.
    Gone,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(Until { term, kill }) => write!(f, "until {term} {kill}"),
            Self::Start(Grant { token, period: None }) => write!(f, "start {token}"),
            Self::Start(Grant { token, period: Some(period) }) => write!(f, "start {token} {period}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Quit => f.write_str("quit"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(id) => write!(f, "group {id}"),
            Self::NotStarted(error) => write!(f, "not-started {error}"),
            Self::Ending => f.write_str("ending"),
            Self::Stopped => f.write_str("stopped"),
            Self::Exited(status) => write!(f, "exited {status}"),
            Self::Killed(signal) => write!(f, "killed {signal}"),
            Self::Gone => f.write_str("gone"),
        }
    }
}

/// A message in a line of text.
pub(crate) trait Message: fmt::Display + Sized {
    fn parse(line: &str) -> Option<Self>;
}

impl Message for Order {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split(' ').collect();
        Some(match words[..] {
            ["until", term, kill] => {
                Self::Until(Until { term: term.parse().ok()?, kill: kill.parse().ok()? })
            }
            ["start", token] => Self::Start(Grant { token: token.parse().ok()?, period: None }),
            ["start", token, period] => {
                Self::Start(Grant { token: token.parse().ok()?, period: Some(period.parse().ok()?) })
            }
            ["signal", signal] => Self::Signal(signal.parse().ok()?),
            ["quit"] => Self::Quit,
            _ => return None,
        })
    }
}

impl Message for Report {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split(' ').collect();
        Some(match words[..] {
            ["group", id] => Self::Group(id.parse().ok()?),
            ["not-started", error] => Self::NotStarted(error.parse().ok()?),
            ["ending"] => Self::Ending,
            ["stopped"] => Self::Stopped,
            ["exited", status] => Self::Exited(status.parse().ok()?),
            ["killed", signal] => Self::Killed(signal.parse().ok()?),
            ["gone"] => Self::Gone,
            _ => return None,
        })
    }
}

/// An end of the pair, which never waits.
pub(crate) struct Channel {
    socket: UnixStream,
    received: Vec<u8>,
    is_closed: bool,
}

impl Channel {
    pub(crate) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, received: Vec::new(), is_closed: false })
    }

    /// Sends a message, unless the other process has stopped reading or is gone.
    ///
    /// A short message is sent as a whole or not at all. The other process is then stopped, or its end is known by
    /// [`is_closed`](Self::is_closed).
    pub(crate) fn send(&mut self, message: &impl Message) -> bool {
        let line = format!("{message}\n");
        self.socket.write(line.as_bytes()).is_ok_and(|length| length == line.len())
    }

    /// Returns the messages that have arrived.
    pub(crate) fn receive<M: Message>(&mut self) -> Vec<M> {
        let mut part = [0; 4096];
        loop {
            match self.socket.read(&mut part) {
                Ok(0) => {
                    self.is_closed = true;
                    break;
                }
                Ok(length) => self.received.extend_from_slice(&part[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_closed |= error.kind() != io::ErrorKind::WouldBlock;
                    break;
                }
            }
        }
        let end = self.received.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let lines: Vec<u8> = self.received.drain(..end).collect();
        String::from_utf8_lossy(&lines).lines().filter_map(M::parse).collect()
    }

    /// Returns whether the other end was found closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends a copy of a descriptor to the process that waits in [`receive_descriptor`].
pub(crate) fn send_descriptor(socket: &UnixStream, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(b"d")], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Waits for a descriptor that was sent with [`send_descriptor`].
pub(crate) fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let parts = &mut [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| recvmsg(socket, parts, &mut control, RecvFlags::empty()))?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(descriptor) = descriptors.next()
        {
            // Not every system can set this flag on arrival.
            fcntl_setfd(&descriptor, FdFlags::CLOEXEC)?;
            return Ok(descriptor);
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

/// Takes the socket that the parent has put in the place of the standard input.
pub(crate) fn socket_in_stdin() -> io::Result<UnixStream> {
    // The copy is closed at the start of another program, unlike the standard input.
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_as_it_was_sent() {
        let (near, far) = UnixStream::pair().expect("a pair");
        let (mut near, mut far) = (Channel::new(near).expect("set"), Channel::new(far).expect("set"));
        let orders = [
            Order::Until(Until { term: 1, kill: u64::MAX }),
            Order::Start(Grant { token: 7, period: None }),
            Order::Start(Grant { token: 8, period: Some(1_795_859_644_120) }),
            Order::Signal(15),
            Order::Quit,
        ];
        let reports = [
            Report::Group(1),
            Report::NotStarted(2),
            Report::Ending,
            Report::Stopped,
            Report::Exited(3),
            Report::Killed(9),
            Report::Gone,
        ];
        assert!(orders.into_iter().all(|order| near.send(&order)));
        assert!(reports.into_iter().all(|report| far.send(&report)));
        assert_eq!(far.receive::<Order>(), orders);
        assert_eq!(near.receive::<Report>(), reports);
        assert!(!near.is_closed());
        drop(far);
        assert!(near.receive::<Report>().is_empty() && near.is_closed());
    }

    #[test]
    fn a_full_channel_does_not_wait() {
        let (near, far) = UnixStream::pair().expect("a pair");
        let mut near = Channel::new(near).expect("set");
        let sent = (0..1_000_000).take_while(|_| near.send(&Order::Signal(10))).count();
        let mut far = Channel::new(far).expect("set");
        assert_eq!(far.receive::<Order>().len(), sent, "each message is whole");
    }

    #[test]
    fn a_descriptor_arrives() {
        let (near, far) = UnixStream::pair().expect("a pair");
        let (mut sent, received) = UnixStream::pair().expect("a pair");
        send_descriptor(&near, received.as_fd()).expect("sent");
        drop(received);
        let mut received: UnixStream = receive_descriptor(&far).expect("received").into();
        sent.write_all(b"x").expect("open");
        let mut byte = [0];
        received.read_exact(&mut byte).expect("the same socket");
        drop(near);
        assert!(receive_descriptor(&far).is_err());
    }
}
