//! `distlock run`: a program under a lock.

mod holder;
mod keeper_process;
mod supervisor;

use std::{ffi::OsStr, io, path::Path, time::Duration};

use lock_runtime::LockKey;

use self::{holder::Holder, keeper_process::KeeperProcess, supervisor::Supervisor};
use crate::{
    arguments::{OnBusy, RunArguments, StoreArguments, Wait},
    exit::{Exit, Failure},
    say,
    signals::{self, ENDING, OTHERS, Signals},
    store,
};

/// Runs the command, and returns its exit status.
pub(crate) fn run(store: &StoreArguments, options: RunArguments) -> Result<u8, Failure> {
    let locks = store::open(store)?;
    let key = LockKey::new(&options.key)?;
    let program = options.command[0].clone();
    let internal = |what: &str, error: &io::Error| Failure::new(Exit::Internal, format!("{what}: {error}"));

    signals::block_terminal_output();
    // If the keeper is killed, its children become children of this process.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let signals = Signals::catch(ENDING.into_iter().chain(OTHERS));
    let signals = signals.map_err(|error| internal("signals cannot be caught", &error))?;
    // The keeper is started before any other thread, from the thread that lives as long as the process.
    let keeper = KeeperProcess::start(&key, &options.command);
    let keeper =
        keeper.map_err(|error| internal("the keeper, a second process, cannot be started", &error))?;

    let label = options.label.unwrap_or_else(|| label_of(&program));
    let mut lock = locks.lock(&options.key).label(label).max_hold(Duration::MAX);
    if let Some(ttl) = options.ttl {
        lock = lock.ttl(ttl);
    }
    lock = match options.wait {
        Wait::AtMost(wait) => lock.wait(wait),
        Wait::Forever => lock.wait_forever(),
    };
    if let Some(period) = options.once_per {
        lock = lock.once_per(period);
    }
    let holder = Holder::start(locks, lock, &options.key);
    let holder = holder.map_err(|error| internal("a thread cannot be started", &error))?;

    let ended = Supervisor::new(key, program, signals, keeper, holder).run();
    match ended {
        Err(failure) if failure.exit == Exit::Held && options.on_busy == OnBusy::Skip => {
            say::line(&format!("skipped: {}", failure.message));
            Ok(0)
        }
        ended => ended,
    }
}

/// Returns the name of a program as a label, cut to the length of a label.
fn label_of(program: &OsStr) -> String {
    let name = Path::new(program);
    let name = name.file_name().unwrap_or(program).to_string_lossy();
    let mut label = String::new();
    for character in name.chars().filter(|character| !character.is_control()) {
        if label.len() + character.len_utf8() > lock_runtime::Label::MAX_BYTES {
            break;
        }
        label.push(character);
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_the_name_of_the_program() {
        assert_eq!(label_of(OsStr::new("/usr/bin/pg_dump")), "pg_dump");
        assert_eq!(label_of(OsStr::new("a\nb")), "ab");
        assert_eq!(label_of(OsStr::new(&"ü".repeat(60))).len(), 62);
        assert_eq!(label_of(OsStr::new("/")), "/");
    }
}
