//! The keeper, as `distlock` sees it.

use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use lock_runtime::LockKey;
use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, getpgrp, kill_process, kill_process_group, wait, waitpid},
};

use crate::{
    children,
    keeper::ROLE,
    program,
    terminal::Terminal,
    wire::{Channel, Order, Report, send_descriptor},
};

/// How long a killed group is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The second process. The drop ends the keeper, and a command that still runs.
pub(super) struct KeeperProcess {
    channel: Channel,
    id: Pid,
    /// The children of this process that are not the keeper's: of the shell that has become this process, for example.
    others: Vec<Pid>,
    /// The command's group, once it is known.
    group: Option<Pid>,
}

impl KeeperProcess {
    pub(super) fn start(key: &LockKey, command: &[OsString]) -> io::Result<Self> {
        let (near, far) = UnixStream::pair()?;
        let others = children::all();
        let child = Command::new(program::path()?)
            .arg0("distlock")
            .arg(ROLE)
            .arg(getpgrp().as_raw_nonzero().to_string())
            .arg(key.as_str())
            .args(command)
            // Neither the keeper nor the command is to know the store's password.
            .env_remove(program::URL)
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(far)))
            .spawn()?;
        send_descriptor(&near, io::stdin().as_fd())?;
        Ok(Self { channel: Channel::new(near)?, id: Pid::from_child(&child), others, group: None })
    }

    pub(super) fn send(&mut self, order: Order) {
        // A keeper that does not read is stopped or gone, which is noticed elsewhere.
        self.channel.send(&order);
    }

    pub(super) fn receive(&mut self) -> Vec<Report> {
        let reports = self.channel.receive();
        for report in &reports {
            match report {
                Report::Group(id) => self.group = Pid::from_raw(*id),
                // Another group may have the id later.
                Report::Gone => self.group = None,
                _ => {}
            }
        }
        reports
    }

    pub(super) fn is_closed(&self) -> bool {
        self.channel.is_closed()
    }

    /// Returns whether there is a command that may still run.
    pub(super) fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// Lets the keeper go on if it was stopped.
    pub(super) fn wake(&self) {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        if let Ok(Some((_, status))) = waitpid(Some(self.id), options)
            && status.stopped()
        {
            let _ = kill_process(self.id, Signal::CONT);
        }
    }

    /// Kills the command's group without the keeper, and what has left the group, and waits until nothing is left, for a
    /// bounded time. Then takes the terminal back.
    pub(super) fn kill_group(&mut self) {
        let Some(group) = self.group.take() else { return };
        let end = Instant::now() + PATIENCE;
        loop {
            let is_gone = kill_process_group(group, Signal::KILL) == Err(Errno::SRCH);
            // Among the children are the keeper, if it still runs, and then what it has left.
            if (children::kill(&self.others) == 0 && is_gone) || Instant::now() >= end {
                break;
            }
            thread::sleep(Duration::from_millis(2));
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        }
        Terminal::of(getpgrp()).take(group);
    }

    /// Kills the command's group if the keeper has not killed the group in time.
    pub(super) fn strike(&self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl AsFd for KeeperProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Drop for KeeperProcess {
    fn drop(&mut self) {
        self.kill_group();
        // The keeper ends by itself when the command is gone, unless the keeper is stopped.
        let end = Instant::now() + Duration::from_secs(1);
        self.channel.send(&Order::Quit);
        while let Ok(None) = waitpid(Some(self.id), WaitOptions::NOHANG) {
            if Instant::now() > end {
                let _ = kill_process(self.id, Signal::KILL);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}
