//! The options of the command line.

use std::{ffi::OsString, path::PathBuf, str::FromStr};

use lexopt::{Arg, Error, Parser, ValueExt};

pub(crate) const USAGE: &str = "\
Usage: cargo run --example bank -- [OPTIONS]

  --requests N     requests per phase            (default 4000)
  --accounts N     accounts they are for         (default 8)
  --connections N  clients at the same time      (default 64)
  --processes N    server processes              (default 1; more need a shared store)
  --help           this text

LOCK_URL=redis://127.0.0.1:6379 keeps the locks on a server; without it they are in memory.";

/// The role of one process of this program.
pub(crate) enum Role {
    /// Run both phases and report.
    Run(Options),
    /// Serve the accounts in this folder, until standard input ends.
    Serve(PathBuf),
    /// Show the usage.
    Help,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) requests: usize,
    pub(crate) accounts: usize,
    pub(crate) connections: usize,
    pub(crate) processes: usize,
}

impl Role {
    pub(crate) fn from_command_line() -> Result<Self, Error> {
        let mut options = Options { requests: 4_000, accounts: 8, connections: 64, processes: 1 };
        let mut parser = Parser::from_env();
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("requests") => options.requests = number(&mut parser, "requests", 1_000_000)?,
                Arg::Long("accounts") => options.accounts = number(&mut parser, "accounts", 10_000)?,
                // Each takes two open files where client and server share a process; the usual limit is 1,024.
                Arg::Long("connections") => options.connections = number(&mut parser, "connections", 400)?,
                Arg::Long("processes") => options.processes = number(&mut parser, "processes", 32)?,
                // Used only by this program, to start its copies.
                Arg::Long("serve") => return Ok(Self::Serve(parser.value()?.into())),
                Arg::Short('h') | Arg::Long("help") => return Ok(Self::Help),
                unknown => return Err(unknown.unexpected()),
            }
        }
        Ok(Self::Run(options))
    }
}

/// Returns the number after an option, from 1 to `most`.
fn number(parser: &mut Parser, option: &str, most: usize) -> Result<usize, Error> {
    let value: OsString = parser.value()?;
    let value = value.string()?;
    match usize::from_str(&value) {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(Error::Custom(format!("--{option} takes a number from 1 to {most}, not {value:?}").into())),
    }
}
