//! The keeper: a process beside `distlock` that is the parent of the command, and that ends the command's group when the
//! lock is lost, and when `distlock` is gone.
//!
//! `distlock` may be killed, crash, or be stopped at any moment, and can then not end the command. So the keeper is a process
//! of its own, in a process group that Ctrl-C does not reach, with one thread that waits for nothing else. `distlock` writes
//! the deadline to the keeper after each renewal; at the last deadline that was written, the keeper kills the
//! group, whatever `distlock` does. When the socket closes, the lock may be free already, because the server ends a
//! session whose connection closes. The keeper therefore kills the group at once.
//!
//! The keeper is the parent of the command, so the command's process id, which is also the id of the command's group, cannot
//! belong to another process before the keeper has seen the command's end.

mod group;
pub(crate) mod stage;

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::process::{Pid, Signal};

use self::{
    group::{CommandGroup, Event},
    stage::Stage,
};
use crate::{
    clock::{self, Poller},
    plan::{self, Step, Until},
    say,
    signals::{self, ENDING, OTHERS, Signals},
    terminal::Terminal,
    wire::{Channel, Grant, Order, Report, receive_descriptor, socket_in_stdin},
};

/// The first argument of the program as a keeper.
pub(crate) const ROLE: &str = "__keeper";

/// Runs as a keeper. The arguments are the process group of `distlock`, the key, and the command.
pub(crate) fn main(arguments: &[OsString]) -> u8 {
    let [home, key, command @ ..] = arguments else { return 0 };
    let home = home.to_str().and_then(|home| home.parse().ok()).and_then(Pid::from_raw);
    let Some(home) = home.filter(|_| !command.is_empty()) else { return 0 };
    let prepared = Keeper::prepare(home, key, command);
    // If `distlock` is gone already, there is nothing to do, and nothing to tell.
    if let Ok(mut keeper) = prepared {
        let _ = keeper.run();
    }
    0
}

struct Keeper<'a> {
    key: &'a OsString,
    command: &'a [OsString],
    poller: Poller,
    signals: Signals,
    control: Channel,
    terminal: Terminal,
    /// The standard input of the command, until the command has it.
    stdin: Option<OwnedFd>,
    /// Nothing is started before `distlock` has written a deadline.
    until: Until,
    stage: Option<Stage>,
    group: Option<CommandGroup>,
    /// There will be no command.
    is_over: bool,
}

impl<'a> Keeper<'a> {
    fn prepare(home: Pid, key: &'a OsString, command: &'a [OsString]) -> io::Result<Self> {
        signals::block_terminal_output();
        // Orphans of the command's processes become children of this process, which then learns of their ends.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        // The keeper has to outlive its command, so all signals but CHLD do nothing. The signals are caught rather than
        // ignored, because the command would ignore them, too.
        let caught = ENDING.into_iter().chain(OTHERS).chain([Signal::TSTP, Signal::CHILD]);
        let signals = Signals::catch(caught)?;
        let socket: UnixStream = socket_in_stdin()?;
        let stdin = receive_descriptor(&socket)?;
        Ok(Self {
            key,
            command,
            poller: Poller::new(),
            signals,
            control: Channel::new(socket)?,
            terminal: Terminal::of(home),
            stdin: Some(stdin),
            until: Until { term: 0, kill: 0 },
            stage: None,
            group: None,
            is_over: false,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        loop {
            let next = self.act();
            if self.is_over {
                return Ok(());
            }
            let sources = [
                Some(self.control.as_fd()).filter(|_| !self.control.is_closed()),
                Some(self.signals.as_fd()),
                self.stage.as_ref().map(Stage::as_fd),
            ];
            let [has_orders, has_signals, is_staged] = self.poller.wait(sources, next)?;
            if has_signals {
                self.signals.arrived();
            }
            if is_staged {
                self.on_staged();
            }
            self.watch_command();
            if has_orders {
                for order in self.control.receive() {
                    self.on_order(order);
                }
            }
        }
    }

    fn report(&mut self, report: Report) {
        // A `distlock` that does not read is stopped or gone, which is noticed elsewhere.
        self.control.send(&report);
    }

    fn on_order(&mut self, order: Order) {
        match order {
            Order::Until(until) => {
                // Once the command was told to end, a renewal is too late.
                let is_final = self.group.as_ref().is_some_and(|group| group.is_ending);
                self.until = if is_final { earlier(self.until, until) } else { until };
            }
            Order::Start(grant) => self.start(grant),
            Order::Signal(signal) => {
                let signal = Signal::from_named_raw(signal);
                if let (Some(group), Some(signal)) = (&self.group, signal) {
                    if signal == Signal::CONT {
                        self.terminal.give(group.id);
                    }
                    group.signal(signal);
                    // A stopped process would not see the signal.
                    if ENDING.contains(&signal) {
                        group.signal(Signal::CONT);
                    }
                }
            }
            Order::Quit => self.is_over |= self.group.is_none(),
        }
    }

    /// Starts the command, in two steps: nothing of the command runs before `distlock` knows its group, so that
    /// `distlock` can end the group if this process is killed.
    fn start(&mut self, grant: Grant) {
        let Some(stdin) = self.stdin.take().filter(|_| self.group.is_none()) else { return };
        match Stage::start(self.key, grant, self.command) {
            Ok(stage) => {
                let id = stage.group();
                self.group = Some(CommandGroup::new(id));
                self.report(Report::Group(id.as_raw_nonzero().get()));
                if clock::now() < self.until.term {
                    // In a pipeline, another program of it may read the terminal, such as a pager.
                    if io::stdout().is_terminal() {
                        self.terminal.give(id);
                    }
                    stage.go(&stdin);
                }
                // Otherwise, the group is ended before it has begun.
                self.stage = Some(stage);
            }
            Err(error) => {
                self.report(Report::NotStarted(error.raw_os_error().unwrap_or_default()));
                self.is_over = true;
            }
        }
    }

    /// The stage has become the command, or has failed to.
    fn on_staged(&mut self) {
        if let Some(error) = self.stage.take().and_then(Stage::failure) {
            self.report(Report::NotStarted(error));
            if let Some(group) = &mut self.group {
                group.is_silent = true;
            }
        }
    }

    /// Reads how the children have changed.
    fn watch_command(&mut self) {
        let Some(group) = &mut self.group else { return };
        for event in group.events(clock::now()) {
            let id = group.id;
            let report = match event {
                Event::Stopped(signal) => {
                    let reads_terminal = matches!(signal, Signal::TTIN | Signal::TTOU);
                    if reads_terminal && self.terminal.give(id) {
                        group.signal(Signal::CONT);
                        continue;
                    }
                    self.terminal.take(id);
                    Report::Stopped
                }
                Event::Exited(status) => Report::Exited(status),
                Event::Killed(signal) => Report::Killed(signal),
            };
            if !group.is_silent {
                self.control.send(&report);
            }
        }
    }

    /// Does what is due; returns when something is due next.
    fn act(&mut self) -> Option<u64> {
        let is_orphaned = self.control.is_closed();
        let Some(group) = &mut self.group else {
            self.is_over |= is_orphaned;
            return None;
        };
        let now = clock::now();
        let is_given_up = group.state.killed_at.is_some_and(|killed_at| plan::is_given_up(killed_at, now));
        if group.is_gone() || is_given_up {
            self.terminal.take(group.id);
            let was_killed = is_orphaned && group.state.is_orphaned;
            self.report(Report::Gone);
            if was_killed {
                say::line(&"distlock itself was ended by force, so its command was killed");
            }
            self.is_over = true;
            return None;
        }
        group.state.is_orphaned = is_orphaned;
        let is_running = group.state.left_at.is_none();
        let next = match plan::step(group.state, self.until, now) {
            Step::Wait(next) => return Some(next),
            Step::Term => {
                group.state.is_warned = true;
                group.signal(Signal::TERM);
                // A stopped process would not see the signal.
                group.signal(Signal::CONT);
                now
            }
            Step::Kill => {
                group.state.killed_at.get_or_insert(now);
                group.kill(is_orphaned || group.is_ending || now >= self.until.kill);
                plan::after_kill(now)
            }
        };
        if is_running && !group.is_ending {
            group.is_ending = true;
            self.report(Report::Ending);
        }
        Some(next)
    }
}

fn earlier(one: Until, other: Until) -> Until {
    Until { term: one.term.min(other.term), kill: one.kill.min(other.kill) }
}
