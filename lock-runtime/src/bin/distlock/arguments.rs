//! The arguments of the command line.

use std::{ffi::OsString, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum, builder::NonEmptyStringValueParser};
use clap_complete::Shell;
use lock_runtime::{__private::duration, backend::FindingCode};

use crate::exit;

/// Runs programs under a distributed lock, shows and revokes locks, and examines their store.
///
/// The store of the locks is in the environment variable `LOCK_URL`, as in `redis://host:6379`, or after `--url`.
#[derive(Debug, Parser)]
#[command(name = "distlock", version, after_long_help = exit::table(), disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Args, Debug)]
pub(crate) struct StoreArguments {
    /// The store; by default, the URL in `LOCK_URL`. A password belongs into `LOCK_URL`, because other users see the arguments.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// What stands before each key in the store; the default depends on the store.
    #[arg(long, global = true, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Runs a command while holding a lock, and ends the command if the lock is lost.
    ///
    /// The exit status is that of the command, or 128 and the number of the signal that ended it. The command has `LOCK_KEY`
    /// and `LOCK_FENCING_TOKEN` in its environment, and with `--once-per`, `LOCK_PERIOD`.
    Run(RunArguments),
    /// Shows who holds a lock, and who waits for it.
    Show(ShowArguments),
    /// Lists the locks that are held.
    List(ListArguments),
    /// Lists the locks that are held, again and again.
    Watch(WatchArguments),
    /// Takes a lock from its holder.
    ///
    /// The holder is told to stop, and the lock is free when the holder has released it, or when its deadline has passed.
    Revoke(RevokeArguments),
    /// Examines the store: what would bite the users of its locks, each with its remedy.
    ///
    /// The doctor also tries whether the locks exclude each other, with a lock of its own: two clients, a renewal, a hand-over,
    /// and a release by another client, which must be refused.
    Doctor(DoctorArguments),
    /// Writes a script that completes the arguments in a shell.
    Completion {
        /// The shell.
        shell: Shell,
    },
    /// Writes the manual page, in the format of `man`.
    Man,
}

#[derive(Args, Debug)]
pub(crate) struct RunArguments {
    /// The name of the lock.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) key: String,
    /// How long the lock stays held after a crash of this machine; 30s by default.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// How long to wait for the lock: a duration, `forever`, or 0 for a single attempt.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = wait)]
    pub(crate) wait: Wait,
    /// What operators see of the holder; by default, the name of the command.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Run the command at most once in each period of this length, on all machines together: from 1s to 744h (31 days).
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) once_per: Option<Duration>,
    /// What to do if the lock is still held at the end of the wait, or if the command ran already in this period.
    #[arg(long, value_enum, default_value_t = OnBusy::Fail)]
    pub(crate) on_busy: OnBusy,
    /// The command and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    AtMost(Duration),
    Forever,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnBusy {
    /// End with status 0, without the command.
    Skip,
    /// End with status 117, without the command.
    Fail,
}

fn wait(text: &str) -> Result<Wait, duration::DurationError> {
    match text {
        "forever" => Ok(Wait::Forever),
        "0" => Ok(Wait::AtMost(Duration::ZERO)),
        _ => duration::parse(text).map(Wait::AtMost),
    }
}

#[derive(Args, Debug)]
pub(crate) struct ShowArguments {
    /// The name of the lock.
    pub(crate) key: String,
    /// Write a line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ListArguments {
    /// The beginning of the names; all locks by default.
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) beginning: String,
    /// Write a line of JSON for each lock.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct WatchArguments {
    /// The beginning of the names; all locks by default.
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) beginning: String,
    /// The pause between two looks, at least 100ms.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    pub(crate) every: Duration,
    /// Write a line of JSON for each look.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RevokeArguments {
    /// The name of the lock.
    pub(crate) key: String,
    /// The fencing token of the holder, as `show` has it; `none` with --force for a client of another library.
    #[arg(value_parser = token)]
    pub(crate) token: Token,
    /// Free the lock at once, even if its holder may still rely on it: two clients can then work at the same time.
    #[arg(long)]
    pub(crate) force: bool,
    /// Write a line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArguments {
    /// The `ttl` of the locks that are going to be used; 30s by default, or the longest that the store allows.
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    pub(crate) ttl: Option<Duration>,
    /// A finding that is neither shown nor counted, such as `persistence`; may be repeated.
    #[arg(long, value_name = "CODE", value_parser = code)]
    pub(crate) ignore: Vec<FindingCode>,
    /// Write a line of JSON for each server and for each finding.
    #[arg(long)]
    pub(crate) json: bool,
}

fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = duration::parse(text).map_err(|error| error.to_string())?;
    let bounds = Duration::from_millis(100)..=Duration::new(24 * 60 * 60, 0);
    if bounds.contains(&ttl) { Ok(ttl) } else { Err("from 100ms to 24h".into()) }
}

fn code(text: &str) -> Result<FindingCode, String> {
    FindingCode::from_name(text).ok_or_else(|| {
        let names = FindingCode::ALL.iter().map(|code| code.name()).collect::<Vec<_>>();
        format!("the findings are {}", names.join(", "))
    })
}

/// A fencing token, unless the holder has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) Option<u64>);

fn token(text: &str) -> Result<Token, String> {
    if text == "none" {
        return Ok(Token(None));
    }
    let number = text.parse().ok().filter(|number| i64::try_from(*number).is_ok());
    number.map(|number| Token(Some(number))).ok_or_else(|| "a fencing token is a whole number".into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_fit_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_run_is_read() {
        let given =
            ["distlock", "run", "k", "--wait", "forever", "--on-busy", "skip", "--url", "u", "--", "a", "-b"];
        let Action::Run(run) = Arguments::try_parse_from(given).expect("right").action else {
            panic!("a run")
        };
        assert_eq!((run.key.as_str(), run.wait, run.on_busy), ("k", Wait::Forever, OnBusy::Skip));
        assert_eq!(run.command, ["a", "-b"]);
        for wrong in [&["distlock", "run", "k", "a"][..], &["distlock", "run", "k", "--wait", "3", "--", "a"]]
        {
            assert!(Arguments::try_parse_from(wrong).is_err());
        }
        assert_eq!(wait("0"), Ok(Wait::AtMost(Duration::ZERO)));
        assert_eq!(token("none"), Ok(Token(None)));
        assert!(token("-1").is_err() && token(&u64::MAX.to_string()).is_err());
    }
}
