//! The main thread of `distlock run`, which stands between the lock, the keeper and the signals. The thread waits for
//! nothing else, so that a busy or blocked runtime cannot delay the thread.

use std::{
    ffi::OsString,
    io,
    os::fd::AsFd as _,
    time::{Duration, SystemTime},
};

use lock_runtime::{__private::is_revoked, HeldLock, LockError, LockErrorKind, LockKey, backend::LockState};
use rustix::process::Signal;

use super::{
    holder::{Event, Holder},
    keeper_process::KeeperProcess,
};
use crate::{
    clock::{self, Poller},
    exit::{self, Exit, Failure},
    operate,
    plan::{self, Until},
    say::Speaker,
    signals::{self, ENDING, Signals},
    wire::{Grant, Order, Report},
};

/// How long after the deadline this process kills the group itself, if the keeper has not.
const KEEPER_DELAY: Duration = Duration::from_millis(10);

pub(super) struct Supervisor {
    key: LockKey,
    program: OsString,
    signals: Signals,
    keeper: KeeperProcess,
    holder: Holder,
    poller: Poller,
    speaker: Speaker,
    held: Option<Held>,
    stage: Stage,
    /// The signal that ended the wait for the lock.
    interrupted: Option<Signal>,
    /// The exit status of the command.
    status: Option<u8>,
    /// Whether the command was ended because the lock was lost.
    was_ended: bool,
    /// The failure with which the program ends when the lock is released.
    failure: Option<Failure>,
}

/// The held lock, and when its command is ended.
struct Held {
    lock: HeldLock,
    /// The latest deadline that was seen.
    deadline: u64,
    /// The longest validity that was seen, which is about the validity after a renewal.
    longest: Duration,
    until: Until,
    /// Why the lock is lost.
    loss: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// The keeper was told to start the command.
    Running,
    /// The command is gone, or there will be none: the holder was told to finish.
    Finishing,
    Finished,
}

impl Supervisor {
    pub(super) fn new(
        key: LockKey,
        program: OsString,
        signals: Signals,
        keeper: KeeperProcess,
        holder: Holder,
    ) -> Self {
        Self {
            key,
            program,
            signals,
            keeper,
            holder,
            poller: Poller::new(),
            speaker: Speaker::start(),
            held: None,
            stage: Stage::Waiting,
            interrupted: None,
            status: None,
            was_ended: false,
            failure: None,
        }
    }

    /// Returns the exit status of the command.
    pub(super) fn run(mut self) -> Result<u8, Failure> {
        while self.stage != Stage::Finished {
            if let Err(error) = self.turn() {
                self.fail(Exit::Internal, format!("distlock cannot go on, so the command is ended: {error}"));
                self.keeper.kill_group();
                break;
            }
        }
        if let Some(signal) = self.interrupted {
            // A shell ends its script for Ctrl-C only if the signal has ended this process.
            drop(self);
            // The first process of a container does not end by a signal, but crash.
            if std::process::id() != 1 {
                let _ = signal_hook::low_level::emulate_default_handler(signal.as_raw());
            }
            return Ok(exit::by_signal(signal.as_raw()));
        }
        if self.failure.is_none() && self.was_ended {
            let loss = self.held.take().and_then(|held| held.loss);
            let loss = loss.unwrap_or_else(|| {
                format!("lock `{}`: its renewals failed until shortly before its deadline", self.key.as_str())
            });
            self.failure = Some(Failure::new(Exit::Lost, format!("{loss}; the command was ended")));
        }
        let internal = || Failure::new(Exit::Internal, "the command ended in an unknown way");
        match (self.failure, self.status) {
            (Some(failure), _) => Err(failure),
            (None, Some(status)) => Ok(status),
            (None, None) => Err(internal()),
        }
    }

    fn turn(&mut self) -> io::Result<()> {
        let next = self.watch_lock();
        let sources = [
            Some(self.holder.as_fd()),
            Some(self.keeper.as_fd()).filter(|_| !self.keeper.is_closed()),
            Some(self.signals.as_fd()),
        ];
        let [has_events, has_reports, has_signals] = self.poller.wait(sources, next)?;
        if has_reports {
            for report in self.keeper.receive() {
                self.on_report(report);
            }
        }
        if self.keeper.is_closed() {
            self.on_keeper_gone();
        }
        if has_events {
            match self.holder.happened() {
                Some(events) => events.into_iter().for_each(|event| self.on_event(event)),
                None if self.stage != Stage::Finished => {
                    return Err(io::Error::other("the thread of the lock has failed"));
                }
                None => {}
            }
        }
        if has_signals {
            for signal in self.signals.arrived() {
                self.on_signal(signal);
            }
        }
        Ok(())
    }

    /// Remembers the first failure.
    fn fail(&mut self, exit: Exit, message: String) {
        self.failure.get_or_insert_with(|| Failure::new(exit, message));
    }

    fn finish(&mut self) {
        self.holder.finish();
        if self.stage != Stage::Finished {
            self.stage = Stage::Finishing;
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            // The acquisition was given up a moment too late.
            Event::Held(_) if self.stage != Stage::Waiting => {}
            Event::Held(lock) => {
                self.signals.catch_also(Signal::TSTP);
                let since_1970 = |period: SystemTime| period.duration_since(SystemTime::UNIX_EPOCH).ok();
                let period = lock.period().and_then(since_1970);
                let period = period.and_then(|period| u64::try_from(period.as_millis()).ok());
                let grant = Grant { token: lock.fencing_token().get(), period };
                let until = Until { term: 0, kill: 0 };
                self.held = Some(Held { lock, deadline: 0, longest: Duration::ZERO, until, loss: None });
                self.stage = Stage::Running;
                self.watch_lock();
                self.keeper.send(Order::Start(grant));
            }
            Event::Refused(error, state) => {
                let exit = Exit::of(&error);
                self.fail(exit, refusal(&error, state.as_ref()));
                self.stage = Stage::Finished;
            }
            // The turn looks at the lock.
            Event::Lost => {}
            Event::Waits(news) => {
                let key = self.key.as_str();
                self.speaker.say(match news {
                    Some(error) => format!("lock `{key}` is still waited for, but its store fails: {error}"),
                    None => format!("lock `{key}` is still waited for, and its store answers again"),
                });
            }
            Event::Finished(released) => {
                if let Err(error) = released
                    && !self.was_ended
                    && self.failure.is_none()
                {
                    let remedy = if error.kind() == LockErrorKind::Lost {
                        "the command had ended before its deadline by this machine's clock"
                    } else {
                        "the lock is free when its lease has ended"
                    };
                    self.speaker.say(format!("warning: {error}; {remedy}"));
                }
                self.stage = Stage::Finished;
            }
        }
    }

    /// Tells the keeper of the lock's deadline; returns when to look again.
    fn watch_lock(&mut self) -> Option<u64> {
        let held = self.held.as_mut().filter(|_| self.stage == Stage::Running)?;
        // The clock is read first: the deadline must not seem later than it is.
        let now = clock::now();
        let left = held.lock.remaining();
        let until = if held.loss.is_some() {
            None
        } else if left.is_zero() {
            let error = held.lock.ensure_valid().err();
            held.loss = Some(error.map_or_else(|| "the lock was lost".into(), |error| error.to_string()));
            Some(if is_revoked(&held.lock) {
                plan::revoked(now, held.deadline, held.longest)
            } else {
                plan::lost(now)
            })
        } else {
            held.deadline = clock::after(now, left);
            held.longest = held.longest.max(left);
            let until = plan::at_deadline(held.deadline, held.longest);
            // Two looks at the same deadline differ a little; the difference is no renewal.
            let is_renewed = until.kill > clock::after(held.until.kill, held.longest / 50);
            is_renewed.then_some(until)
        };
        if let Some(until) = until {
            held.until = until;
            self.keeper.send(Order::Until(until));
        }
        let strike = clock::after(held.until.kill, KEEPER_DELAY);
        if now >= strike && self.keeper.has_group() {
            self.was_ended |= self.status.is_none();
            self.keeper.strike();
        }
        self.keeper.wake();
        let look = clock::after(now, plan::look_again(held.longest));
        Some(if strike > now { look.min(strike) } else { look })
    }

    fn on_report(&mut self, report: Report) {
        match report {
            Report::Group(_) => {}
            Report::NotStarted(number) => {
                let error = io::Error::from_raw_os_error(number);
                let program = self.program.to_string_lossy().into_owned();
                self.fail(Exit::NotStarted, format!("the command `{program}` cannot be started: {error}"));
                // Without a group, nothing follows.
                if !self.keeper.has_group() {
                    self.finish();
                }
            }
            Report::Ending => {
                self.was_ended = true;
                let key = self.key.as_str();
                self.speaker.say(format!("lock `{key}` is lost or about to be; its command is being ended"));
            }
            Report::Stopped => {
                let (key, id) = (self.key.as_str(), std::process::id());
                self.speaker.say(format!(
                    "the command is stopped, and lock `{key}` stays held; `kill -CONT {id}` lets the command go on"
                ));
            }
            Report::Exited(status) => self.status = Some(u8::try_from(status).unwrap_or(u8::MAX)),
            Report::Killed(signal) => {
                self.status = Some(exit::by_signal(signal));
                // A shell says this of its own commands, too. Signals of the terminal and of the user are no news.
                if signal == Signal::KILL.as_raw() && !self.was_ended {
                    self.speaker.say(format!("the command was ended by {}", signals::name(signal)));
                }
            }
            Report::Gone => self.finish(),
        }
    }

    /// Ends the command: without its keeper, the command would outlive this process.
    fn on_keeper_gone(&mut self) {
        match self.stage {
            Stage::Waiting => {
                self.fail(Exit::Internal, "the keeper, a second process of distlock, has ended".into());
                self.finish();
            }
            Stage::Running => {
                self.keeper.kill_group();
                self.fail(
                    Exit::Internal,
                    "the keeper, a second process of distlock, has ended, so the command was ended".into(),
                );
                self.finish();
            }
            Stage::Finishing | Stage::Finished => {}
        }
    }

    fn on_signal(&mut self, signal: Signal) {
        match self.stage {
            Stage::Waiting if ENDING.contains(&signal) => {
                self.interrupted = Some(signal);
                self.finish();
            }
            Stage::Running => self.keeper.send(Order::Signal(signal.as_raw())),
            _ => {}
        }
    }
}

/// Returns why the lock was not granted, and who holds it.
fn refusal(error: &LockError, state: Option<&LockState>) -> String {
    let holders = state.map(|state| state.holders.iter().map(operate::holder_in_words).collect::<Vec<_>>());
    match holders.filter(|holders| !holders.is_empty()) {
        Some(holders) => format!("{error}; held by {}", holders.join(", ")),
        None => error.to_string(),
    }
}
