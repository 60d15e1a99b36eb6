//! The clock of the deadlines, and waiting for it.

use std::{io, os::fd::BorrowedFd, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    time::{ClockId, clock_gettime},
};

/// The clock of the library's deadlines: on Linux, it also runs while the machine is suspended. All processes of a
/// machine share it.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Returns the current moment, in nanoseconds.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(CLOCK);
    u64::try_from(now.tv_sec).unwrap_or(0) * NANOS_PER_SECOND + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Returns the moment `length` after `moment`.
pub(crate) fn after(moment: u64, length: Duration) -> u64 {
    moment.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX))
}

/// Returns the moment `length` before `moment`.
pub(crate) fn before(moment: u64, length: Duration) -> u64 {
    moment.saturating_sub(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX))
}

fn timespec(nanos: u64) -> Timespec {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    #[allow(clippy::useless_conversion, reason = "the types differ between systems")]
    Timespec {
        tv_sec: number(nanos / NANOS_PER_SECOND),
        tv_nsec: number(nanos % NANOS_PER_SECOND).try_into().unwrap_or_default(),
    }
}

/// Waits for descriptors, and for a moment on the clock.
pub(crate) struct Poller {
    /// The timeout of `poll` stands still while the machine is suspended; this timer does not.
    #[cfg(target_os = "linux")]
    alarm: Option<std::os::fd::OwnedFd>,
}

impl Poller {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            alarm: {
                use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
                let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
                timerfd_create(TimerfdClockId::Boottime, flags).ok()
            },
        }
    }

    /// Waits until a descriptor can be read or is closed, at most until the moment `until`; returns which descriptors. The
    /// wait may end early, with none.
    pub(crate) fn wait<const N: usize>(
        &self,
        sources: [Option<BorrowedFd<'_>>; N],
        until: Option<u64>,
    ) -> io::Result<[bool; N]> {
        let left = until.map(|until| timespec(until.saturating_sub(now())));
        let mut polled: Vec<_> =
            sources.iter().flatten().map(|source| PollFd::from_borrowed_fd(*source, PollFlags::IN)).collect();
        #[cfg(target_os = "linux")]
        if let (Some(alarm), Some(until)) = (&self.alarm, until) {
            use rustix::time::{Itimerspec, TimerfdTimerFlags, timerfd_settime};
            // Zero would disarm the timer.
            let time = Itimerspec { it_interval: timespec(0), it_value: timespec(until.max(1)) };
            if timerfd_settime(alarm, TimerfdTimerFlags::ABSTIME, &time).is_ok() {
                polled.push(PollFd::new(alarm, PollFlags::IN));
            }
        }
        match poll(&mut polled, left.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok([false; N]),
            Err(error) => return Err(error.into()),
        }
        let mut polled = polled.iter();
        Ok(sources.map(|source| {
            source.is_some() && polled.next().is_some_and(|polled| !polled.revents().is_empty())
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::fd::AsFd as _, os::unix::net::UnixStream};

    use super::*;

    #[test]
    fn a_wait_ends_at_its_moment_and_for_the_descriptor_that_is_ready() {
        let poller = Poller::new();
        let (mut near, far) = UnixStream::pair().expect("a pair");
        let (_open, idle) = UnixStream::pair().expect("a pair");
        let until = after(now(), Duration::from_millis(30));
        let mut ready = [false; 3];
        while now() < until {
            ready = poller.wait([Some(idle.as_fd()), None, Some(far.as_fd())], Some(until)).expect("polled");
        }
        assert_eq!(ready, [false; 3]);
        near.write_all(b"x").expect("room");
        let ready = poller
            .wait([Some(idle.as_fd()), None, Some(far.as_fd())], Some(after(now(), Duration::from_secs(61))));
        assert_eq!(ready.expect("polled"), [false, false, true]);
        assert!(poller.wait([], Some(0)).is_ok(), "a moment that has passed");
    }
}
