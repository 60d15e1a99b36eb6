//! The terminal, which one process group at a time may read.

use std::fs::{File, OpenOptions};

use rustix::{
    process::Pid,
    termios::{tcgetpgrp, tcsetpgrp},
};

/// The terminal of the session, if there is one.
pub(crate) struct Terminal {
    device: Option<File>,
    /// The group of `distlock`.
    home: Pid,
}

impl Terminal {
    pub(crate) fn of(home: Pid) -> Self {
        Self { device: OpenOptions::new().read(true).write(true).open("/dev/tty").ok(), home }
    }

    /// Gives the terminal to the command's group if the group of `distlock` has the terminal; returns whether it did.
    pub(crate) fn give(&self, group: Pid) -> bool {
        self.hand_over(self.home, group)
    }

    /// Takes the terminal back if the command's group has the terminal.
    pub(crate) fn take(&self, group: Pid) {
        self.hand_over(group, self.home);
    }

    fn hand_over(&self, from: Pid, to: Pid) -> bool {
        let Some(device) = &self.device else { return false };
        tcgetpgrp(device).is_ok_and(|now| now == from) && tcsetpgrp(device, to).is_ok()
    }
}
