//! Signals to this program.

use std::{
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
};

use nix::sys::signal::{SigSet, Signal as Nix};
use rustix::process::Signal;
use signal_hook::iterator::{backend::SignalDelivery, exfiltrator::SignalOnly};

/// The signals that ask a program to end.
pub(crate) const ENDING: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
/// The signals that mean something else.
pub(crate) const OTHERS: [Signal; 4] = [Signal::USR1, Signal::USR2, Signal::WINCH, Signal::CONT];

/// The signals that have arrived and wait to be read.
pub(crate) struct Signals(SignalDelivery<UnixStream, SignalOnly>);

impl Signals {
    /// Catches these signals from now on.
    ///
    /// An ignored signal stays ignored by this process and by the processes that this process starts: `nohup` ignores
    /// HUP. (At the start of another program, handlers end, but ignored signals stay ignored.)
    pub(crate) fn catch(signals: impl IntoIterator<Item = Signal>) -> io::Result<Self> {
        let ignored = ignored();
        let wanted = signals.into_iter().filter(|signal| !ignored.contains(signal)).map(Signal::as_raw);
        let (read, write) = UnixStream::pair()?;
        // A signal handler must not wait for room.
        write.set_nonblocking(true)?;
        SignalDelivery::with_pipe(read, write, SignalOnly, wanted).map(Self)
    }

    /// Catches another signal.
    pub(crate) fn catch_also(&self, signal: Signal) {
        if !ignored().contains(&signal) {
            let _ = self.0.handle().add_signal(signal.as_raw());
        }
    }

    /// Returns the signals that have arrived since the last call.
    pub(crate) fn arrived(&mut self) -> Vec<Signal> {
        self.0.pending().filter_map(Signal::from_named_raw).collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }
}

/// Returns which of the caught signals are ignored, as far as the system shows it.
fn ignored() -> Vec<Signal> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    let all = ENDING.into_iter().chain(OTHERS).chain([Signal::TSTP]);
    all.filter(|signal| mask & (1 << (signal.as_raw() - 1)) != 0).collect()
}

/// Blocks TTOU in this thread and in the threads that this thread starts later, so that a process in the background may
/// write to the terminal, and give the terminal to another group.
pub(crate) fn block_terminal_output() {
    let _ = terminal_output().thread_block();
}

/// Undoes [`block_terminal_output`], because the next program inherits the mask.
pub(crate) fn unblock_terminal_output() {
    let _ = terminal_output().thread_unblock();
}

fn terminal_output() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Nix::SIGTTOU);
    set
}

/// Returns the usual name of a signal.
pub(crate) fn name(signal: i32) -> String {
    Nix::try_from(signal).map_or_else(|_| format!("signal {signal}"), |signal| signal.as_str().to_owned())
}
