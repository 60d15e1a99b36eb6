//! The main job: a bank that loses money without the lock, and none with it.
//!
//! `cargo run --example bank` needs nothing installed; with `LOCK_URL=redis://127.0.0.1:6379` the locks are kept on a
//! server, and `cargo run --example bank -- --processes 4` lets several processes share the accounts.
//!
//! `server.rs` has the code that a user of the library writes: a handler under `#[distributed_lock]` and a route
//! under `LockLayer`. The rest sends it a few thousand requests concurrently, first to routes without a lock, then
//! to the locked ones, and counts the lost updates.

mod load;
mod options;
mod processes;
mod report;
mod server;

use std::{
    env::{self, VarError},
    error::Error,
    io,
    path::Path,
    process::{ExitCode, exit},
    time::{SystemTime, UNIX_EPOCH},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lock_runtime::LockManager;
use tokio::{signal::ctrl_c, sync::oneshot};

use crate::{
    load::Load,
    options::{Options, Role, USAGE},
    processes::{Servers, serve_as_copy},
    report::{Phase, table, verdict},
    server::{Account, Bank},
};

/// Exit code with which a shell reports a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Role::from_command_line() {
        Ok(Role::Run(options)) => run(options).await,
        Ok(Role::Serve(folder)) => serve(&folder).await,
        Ok(Role::Help) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("bank: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("bank: {error}");
        ExitCode::FAILURE
    })
}

async fn run(options: Options) -> Result<ExitCode, Box<dyn Error>> {
    let mut interrupted = interrupts();
    let folder = tempfile::Builder::new().prefix("bank-").tempdir()?;
    let servers = tokio::select! {
        servers = start(options, folder.path()) => servers?,
        _ = &mut interrupted => return Ok(ExitCode::from(INTERRUPTED)),
    };
    let phases = tokio::select! {
        phases = both_phases(options, &servers, folder.path()) => Some(phases),
        // Dropping the clients closes their connections, so the server drops their requests.
        _ = &mut interrupted => None,
    };
    let released = servers.stop().await;
    folder.close()?;

    let Some(phases) = phases else {
        let locks =
            if released { "released" } else { "not all known to be released; they end with their ttl" };
        eprintln!("bank: interrupted; the servers are stopped and the locks {locks}");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let [unlocked, locked] = phases?;
    println!("{}", table(&[&unlocked, &locked]));
    println!("{}", verdict(&unlocked, &locked)?);
    Ok(ExitCode::SUCCESS)
}

/// Ready at the first Ctrl-C, for an orderly end; the second one ends the process at once.
fn interrupts() -> oneshot::Receiver<()> {
    let (interrupt, interrupted) = oneshot::channel();
    tokio::spawn(async move {
        ctrl_c().await.ok();
        interrupt.send(()).ok();
        ctrl_c().await.ok();
        exit(INTERRUPTED.into());
    });
    interrupted
}

async fn start(options: Options, folder: &Path) -> Result<Servers, Box<dyn Error>> {
    let locks = connect().await?;
    if options.processes > 1 && !locks.capabilities().is_shared_between_processes() {
        let problem = "--processes needs a store that processes share; these locks are in memory, where other \
                       processes do not see them. Set LOCK_URL, for example to redis://127.0.0.1:6379";
        return Err(problem.into());
    }
    Servers::start(Bank { locks, folder: folder.into() }, options.processes).await
}

/// Sends the same requests to the routes without and with the lock, on fresh accounts.
async fn both_phases(options: Options, servers: &Servers, folder: &Path) -> io::Result<[Phase; 2]> {
    let progress = ProgressBar::with_draw_target(
        Some(2 * options.requests as u64),
        // Draws nothing if standard output is not a terminal.
        ProgressDrawTarget::stdout(),
    )
    .with_style(
        ProgressStyle::with_template("{msg:16} {wide_bar} {pos}/{len} {elapsed}").expect("a valid template"),
    );
    let mut phases = Vec::new();
    for (name, route) in [("without the lock", "unlocked"), ("under the lock", "locked")] {
        progress.set_message(name);
        let accounts = open_accounts(folder, options.accounts)?;
        let load = Load {
            route,
            accounts: accounts.clone(),
            servers: servers.addresses.clone(),
            requests: options.requests,
            connections: options.connections,
        };
        let answers = load.send(&progress).await;
        let mut booked = 0;
        for id in accounts {
            booked += Account::read(&folder.join(id.to_string()))?.bookings;
        }
        phases.push(Phase { name, requests: options.requests, answers, booked });
    }
    progress.finish_and_clear();
    Ok(phases.try_into().expect("two phases"))
}

/// Opens accounts with numbers that no other phase or run uses: their locks may be on a shared server.
fn open_accounts(folder: &Path, count: usize) -> io::Result<Vec<u64>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
    let first = u64::try_from(now.as_micros()).map_err(io::Error::other)?;
    (first..)
        .take(count)
        .map(|id| Account::default().write(&folder.join(id.to_string())).map(|()| id))
        .collect()
}

/// Runs one of the servers that `--processes` adds.
async fn serve(folder: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let bank = Bank { locks: connect().await?, folder: folder.into() };
    Ok(if serve_as_copy(bank).await? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn connect() -> Result<LockManager, Box<dyn Error>> {
    let url = match env::var("LOCK_URL") {
        Ok(url) => url,
        Err(VarError::NotPresent) => "memory:".into(),
        Err(VarError::NotUnicode(_)) => return Err("LOCK_URL is not valid UTF-8".into()),
    };
    Ok(LockManager::connect(&url).await?)
}
