//! The command's process group.

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, wait},
};

use crate::{children, plan};

/// A change of the command itself, the first process of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Stopped(Signal),
    Exited(i32),
    Killed(i32),
}

pub(super) struct CommandGroup {
    pub(super) id: Pid,
    pub(super) state: plan::Group,
    /// Whether the command was told to end because the lock is lost.
    pub(super) is_ending: bool,
    /// Whether the processes that have left the group are killed, too.
    takes_strays: bool,
    /// Whether the first process never became the command, so that its end is not reported.
    pub(super) is_silent: bool,
}

impl CommandGroup {
    /// Creates the group of a child of this process, which has the same id.
    pub(super) fn new(id: Pid) -> Self {
        Self { id, state: plan::Group::default(), is_ending: false, takes_strays: false, is_silent: false }
    }

    /// Sends a signal to all processes of the group.
    ///
    /// The id is that of the group as long as the command runs or was not waited for, or another process of the group is
    /// there.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.id, signal);
    }

    /// Kills all processes of the group; if the command may not go on without the lock (`is_lost`), also those that have
    /// left the group. To be repeated, because the latter are found only when their parents are gone.
    pub(super) fn kill(&mut self, is_lost: bool) {
        self.signal(Signal::KILL);
        self.takes_strays |= is_lost;
        if self.takes_strays {
            children::kill(&[]);
        }
    }

    /// Returns whether no process is left that has to end.
    pub(super) fn is_gone(&self) -> bool {
        self.state.left_at.is_some()
            && test_kill_process_group(self.id) == Err(Errno::SRCH)
            && !((self.takes_strays || self.is_ending) && children::kill(&[]) > 0)
    }

    /// Waits for the children that have changed, among them orphans of the group; returns the changes of the command.
    pub(super) fn events(&mut self, now: u64) -> Vec<Event> {
        let mut events = Vec::new();
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        while let Ok(Some((pid, status))) = wait(options) {
            if pid != self.id {
                continue;
            }
            if let Some(signal) = status.stopping_signal() {
                events.push(Event::Stopped(Signal::from_named_raw(signal).unwrap_or(Signal::STOP)));
            } else if let Some(status) = status.exit_status() {
                events.push(Event::Exited(status));
            } else if let Some(signal) = status.terminating_signal() {
                events.push(Event::Killed(signal));
            }
        }
        if matches!(events.last(), Some(Event::Exited(_) | Event::Killed(_))) {
            self.state.left_at = Some(now);
        }
        events
    }
}
