//! The stage: the process that becomes the command.
//!
//! The stage is in the command's group from its first instruction on, but executes the command only when the keeper lets
//! the stage go: when `distlock` knows the group. If the keeper ends before, the stage ends.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use lock_runtime::__private::json::timestamp;
use rustix::process::Pid;

use crate::{
    program, signals,
    wire::{Grant, receive_descriptor, send_descriptor, socket_in_stdin},
};

/// The first argument of the program as a stage.
pub(crate) const ROLE: &str = "__stage";

/// A stage, as the keeper sees it.
pub(super) struct Stage {
    socket: UnixStream,
    group: Pid,
}

impl Stage {
    /// Starts a process that waits for [`go`](Self::go).
    pub(super) fn start(key: &OsStr, grant: Grant, command: &[OsString]) -> io::Result<Self> {
        let (near, far) = UnixStream::pair()?;
        let mut stage = Command::new(program::path()?);
        // The period of another `distlock`, which may have started this one, is none of this lock.
        match grant.period {
            Some(period) => {
                stage.env(program::PERIOD, timestamp(SystemTime::UNIX_EPOCH + Duration::from_millis(period)))
            }
            None => stage.env_remove(program::PERIOD),
        };
        let child = stage
            .arg0("distlock")
            .arg(ROLE)
            .arg(std::process::id().to_string())
            .args(command)
            .env(program::KEY, key)
            .env(program::TOKEN, grant.token.to_string())
            .env_remove(program::URL)
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(far)))
            .spawn()?;
        Ok(Self { socket: near, group: Pid::from_child(&child) })
    }

    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// Lets the stage execute the command, with this standard input.
    pub(super) fn go(&self, stdin: &OwnedFd) {
        // If the stage was killed, its end counts as the end of the command.
        let _ = send_descriptor(&self.socket, stdin.as_fd());
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the system's number of the error if the command could not be executed. To be called when the socket can be
    /// read: the execution closes the other end.
    pub(super) fn failure(mut self) -> Option<i32> {
        let mut text = String::new();
        self.socket.read_to_string(&mut text).ok()?;
        text.parse().ok()
    }
}

/// Runs as a stage. The arguments are the process id of the keeper, and the command.
pub(crate) fn main(arguments: &[OsString]) -> u8 {
    // The keeper learns of a failure from the socket, so the results of this function mean nothing.
    let [keeper, program, arguments @ ..] = arguments else { return 0 };
    let Ok(mut socket) = socket_in_stdin() else { return 0 };
    let keeper = keeper.to_str().and_then(|keeper| keeper.parse().ok()).and_then(Pid::from_raw);
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
    // The keeper may have ended before the signal was set; then the socket is closed, on every system.
    let Ok(stdin) = receive_descriptor(&socket) else { return 0 };
    if keeper.is_none() || rustix::process::getppid() != keeper {
        return 0;
    }
    let error = match rustix::stdio::dup2_stdin(&stdin) {
        Ok(()) => {
            drop(stdin);
            signals::unblock_terminal_output();
            Command::new(program).args(arguments).exec()
        }
        Err(error) => error.into(),
    };
    let _ = write!(socket, "{}", error.raw_os_error().unwrap_or_default());
    0
}
