//! `distlock`, the command line of lock-runtime: runs a program under a lock, shows and revokes locks, and
//! examines stores.
//!
//! The page [`docs::distlock`](lock_runtime::docs::distlock) is for its users. The process that the user starts
//! ([`run`]) holds the lock. The *keeper*, a second process of the same program ([`keeper`]), is the parent of the
//! command, and ends the command when the lock is lost or the first process is gone.

#[cfg(unix)]
mod arguments;
#[cfg(unix)]
mod children;
#[cfg(unix)]
mod clock;
#[cfg(unix)]
mod doctor;
#[cfg(unix)]
mod exit;
#[cfg(unix)]
mod keeper;
#[cfg(unix)]
mod operate;
#[cfg(unix)]
mod pages;
#[cfg(unix)]
mod plan;
#[cfg(unix)]
mod program;
#[cfg(unix)]
mod run;
#[cfg(unix)]
mod runtime;
#[cfg(unix)]
mod say;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod store;
#[cfg(unix)]
mod style;
#[cfg(unix)]
mod terminal;
#[cfg(unix)]
mod wire;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    use clap::Parser as _;

    use crate::{
        arguments::{Action, Arguments},
        exit::{Exit, Failure},
    };

    let given: Vec<_> = std::env::args_os().collect();
    let code = match given.get(1).and_then(|role| role.to_str()) {
        Some(keeper::ROLE) => return keeper::main(&given[2..]).into(),
        Some(keeper::stage::ROLE) => return keeper::stage::main(&given[2..]).into(),
        _ => match Arguments::try_parse_from(&given) {
            Err(error) => {
                // Help and version are no mistakes.
                let code = if error.use_stderr() { Exit::Usage.code() } else { 0 };
                let _ = error.print();
                Ok(code)
            }
            Ok(Arguments { store, action }) => match action {
                Action::Run(options) => run::run(&store, options),
                Action::Show(options) => operate::show(&store, &options),
                Action::List(options) => operate::list(&store, &options),
                Action::Watch(options) => operate::watch(&store, &options),
                Action::Revoke(options) => operate::revoke(&store, &options),
                Action::Doctor(options) => doctor::doctor(&store, &options),
                Action::Completion { shell } => pages::completion(shell),
                Action::Man => pages::man(),
            },
        },
    };
    code.unwrap_or_else(|Failure { exit, message }| {
        say::line(&message);
        exit.code()
    })
    .into()
}

#[cfg(not(unix))]
fn main() {
    println!("distlock is built for Unix only: it needs process groups and signals");
    std::process::exit(122);
}
