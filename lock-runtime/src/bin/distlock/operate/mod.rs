//! The subcommands of operators: who holds which lock, and how a lock is taken from its holder.

mod table;

use std::{
    fmt::Write as _,
    io::{IsTerminal as _, stdout},
    time::{Duration, SystemTime},
};

use lock_runtime::{
    __private::json, FencingToken, LockError, LockErrorKind, LockHolder, LockManager, LockWaiter,
    backend::LockState,
};

use self::table::Table;
use crate::{
    arguments::{ListArguments, RevokeArguments, ShowArguments, StoreArguments, Token, WatchArguments},
    exit::{Exit, Failure},
    pages::{print, write},
    runtime::block_on,
    say, store,
    style::{Style, clean},
};

/// Upper bound on the locks of a list whose waiters are asked for: a scan does not show them on each store, and each
/// takes a round trip.
const MAX_INSPECTED: usize = 100;
/// Upper bound on the time for asking for the waiters of a list.
const PATIENCE: Duration = Duration::from_secs(5);
/// The shortest pause between two looks.
const MIN_PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn show(store: &StoreArguments, options: &ShowArguments) -> Result<u8, Failure> {
    let locks = store::open(store)?;
    block_on(async {
        let state = locks.inspect(&options.key).await?;
        if options.json {
            return print(format!("{}\n", json::lock(&state, true)).as_bytes());
        }
        print(in_words(&state, Style::of_stdout(), SystemTime::now()).as_bytes())
    })
}

pub(crate) fn list(store: &StoreArguments, options: &ListArguments) -> Result<u8, Failure> {
    let locks = store::open(store)?;
    block_on(async {
        let found = look(&locks, &options.beginning).await?;
        if options.json {
            let lines = found.in_json().map(|line| line + "\n").collect::<String>();
            return print(lines.as_bytes());
        }
        print(table_of(&found, Style::of_stdout(), SystemTime::now()).as_bytes())
    })
}

pub(crate) fn watch(store: &StoreArguments, options: &WatchArguments) -> Result<u8, Failure> {
    let locks = store::open(store)?;
    let every = options.every.max(MIN_PAUSE);
    block_on(async {
        let mut has_looked = false;
        loop {
            let found = match look(&locks, &options.beginning).await {
                Ok(found) => found,
                // Operators look because something is wrong: what follows is of interest to them.
                Err(error) if has_looked && error.is_retryable() => {
                    say::line(&error);
                    tokio::time::sleep(every).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            has_looked = true;
            let now = SystemTime::now();
            let time = json::timestamp(now);
            let text = if options.json {
                let all = found.in_json().collect::<Vec<_>>().join(",");
                format!("{{\"time\":\"{time}\",\"locks\":[{all}]}}\n")
            } else {
                let style = Style::of_stdout();
                // On a terminal, each table takes the place of the table before.
                let start = if stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
                format!("{start}{time}, {} held\n{}\n", found.locks.len(), table_of(&found, style, now))
            };
            if !write(text.as_bytes())? {
                return Ok(0);
            }
            tokio::time::sleep(every).await;
        }
    })
}

pub(crate) fn revoke(store: &StoreArguments, options: &RevokeArguments) -> Result<u8, Failure> {
    let locks = store::open(store)?;
    let (key, Token(number)) = (&options.key, options.token);
    let token = number.map(FencingToken::from_number);
    let is_revoked = block_on(async {
        let revoked = match token {
            _ if options.force => locks.revoke_by_force(key, token).await,
            Some(token) => locks.revoke(key, token).await,
            None => {
                let message =
                    "a client of another library knows no revocation: add --force to free its lock at once";
                return Err(Failure::new(Exit::Usage, message));
            }
        };
        let remedy = |error: &LockError| match error.kind() {
            LockErrorKind::Backend => {
                "; the lock may be revoked all the same: see `distlock show`, and try again"
            }
            _ => "",
        };
        revoked.map_err(|error| Failure::new(Exit::of(&error), format!("{error}{}", remedy(&error))))
    })?;
    let code = if is_revoked { 0 } else { Exit::NotRevoked.code() };
    if options.json {
        let mut line = String::from(r#"{"key":"#);
        json::text(&mut line, Some(key));
        line.push_str(r#","token":"#);
        json::text(&mut line, number.map(|number| number.to_string()).as_deref());
        line.push_str(if is_revoked { ",\"revoked\":true}\n" } else { ",\"revoked\":false}\n" });
        return print(line.as_bytes()).map(|_| code);
    }
    let key = clean(key);
    let told = match (is_revoked, options.force) {
        (true, true) => {
            format!("lock `{key}` is free or granted to its next holder; the last one may not know it yet\n")
        }
        (true, false) => format!(
            "lock `{key}` is revoked: its holder is told to stop, and the lock is free when the holder has released \
             it, or at its deadline\n"
        ),
        (false, _) => format!("lock `{key}` is not held with this fencing token; see `distlock show`\n"),
    };
    print(told.as_bytes()).map(|_| code)
}

/// The locks that are held.
struct Found {
    locks: Vec<LockState>,
    /// Whether the store was asked for the waiters of each lock.
    has_waiters: bool,
}

impl Found {
    fn in_json(&self) -> impl Iterator<Item = String> {
        self.locks.iter().map(|state| json::lock(state, self.has_waiters))
    }
}

/// Returns the held locks by their names, with their waiters if they are few.
async fn look(locks: &LockManager, beginning: &str) -> Result<Found, LockError> {
    let mut scan = locks.scan(beginning);
    let mut found = Vec::new();
    while let Some(state) = scan.next().await {
        found.push(state?);
    }
    found.sort_by(|one: &LockState, other| one.key.as_str().cmp(other.key.as_str()));
    found.dedup_by(|one, other| one.key == other.key);
    let mut has_waiters = false;
    if found.len() <= MAX_INSPECTED {
        let inspect = async {
            let mut has_answers = true;
            for state in &mut found {
                match locks.inspect(state.key.as_str()).await {
                    Ok(now) => *state = now,
                    // What the scan has found is shown even if this lock cannot be asked for alone.
                    Err(_) => has_answers = false,
                }
            }
            has_answers
        };
        has_waiters = tokio::time::timeout(PATIENCE, inspect).await.unwrap_or(false);
        found.retain(LockState::is_held);
    }
    Ok(Found { locks: found, has_waiters })
}

fn table_of(found: &Found, style: Style, now: SystemTime) -> String {
    if found.locks.is_empty() {
        return "no lock is held\n".into();
    }
    let mut table = Table::new(["KEY", "HOLDER", "LABEL", "FOR", "REMAINING", "TOKEN", "WAITERS"]);
    for state in &found.locks {
        // A scan shows the waiters on some stores.
        let are_known = found.has_waiters || !state.waiters.is_empty();
        for holder in &state.holders {
            table.row([
                state.key.as_str().to_owned(),
                client(holder).to_owned(),
                holder.label().unwrap_or("-").to_owned(),
                age(holder, now).unwrap_or_else(|| "-".into()),
                remaining(holder).unwrap_or_else(|| "-".into()),
                token(holder).unwrap_or_else(|| "-".into()),
                if are_known { state.waiters.len().to_string() } else { "-".into() },
            ]);
        }
    }
    table.text(style)
}

fn in_words(state: &LockState, style: Style, now: SystemTime) -> String {
    let key = style.strong(&clean(state.key.as_str()));
    if !state.is_held() {
        return format!("{key} is free\n");
    }
    let mut text = format!("{key} is held\n");
    let mut line = |name: &str, value: &str| _ = writeln!(text, "  {name:<10} {}", clean(value));
    for holder in &state.holders {
        let revoked = if holder.is_revoked() { " (revoked, not released yet)" } else { "" };
        line("holder", &format!("{}{revoked}", client(holder)));
        line("label", holder.label().unwrap_or("-"));
        let since = holder.since().map(json::timestamp);
        let age = age(holder, now).map(|age| format!(" (for {age})")).unwrap_or_default();
        line("since", &since.map_or_else(|| "not known".into(), |since| since + &age));
        line("remaining", &remaining(holder).unwrap_or_else(|| "as long as the holder's session".into()));
        line("token", &token(holder).unwrap_or_else(|| "none".into()));
    }
    for waiter in &state.waiters {
        line("waiter", &waiter_in_words(waiter));
    }
    text
}

/// Returns a holder in a few words, for a message.
pub(crate) fn holder_in_words(holder: &LockHolder) -> String {
    let mut words = client(holder).to_owned();
    if let Some(label) = holder.label() {
        let _ = write!(words, " ({label})");
    }
    if let Some(since) = holder.since() {
        let _ = write!(words, " since {}", json::timestamp(since));
    }
    if let Some(token) = token(holder) {
        let _ = write!(words, ", fencing token {token}");
    }
    clean(&words)
}

fn client(holder: &LockHolder) -> &str {
    let unknown = if holder.is_foreign() { "a client of another library" } else { "unknown" };
    holder.client().unwrap_or(unknown)
}

fn waiter_in_words(waiter: &LockWaiter) -> String {
    let client = waiter.client().unwrap_or("unknown");
    waiter.label().map_or_else(|| client.to_owned(), |label| format!("{client} ({label})"))
}

fn token(holder: &LockHolder) -> Option<String> {
    holder.token().map(|token| token.to_string())
}

/// Returns how long the lock has been held, by the clocks of the store and of this machine.
fn age(holder: &LockHolder, now: SystemTime) -> Option<String> {
    Some(length(now.duration_since(holder.since()?).unwrap_or_default()))
}

fn remaining(holder: &LockHolder) -> Option<String> {
    match holder.remaining()? {
        Duration::MAX => Some("without end".into()),
        left if left.as_secs() < 60 => Some(format!("{:.1}s", left.as_secs_f64())),
        left => Some(length(left)),
    }
}

/// Returns a length in its two largest units.
fn length(length: Duration) -> String {
    let seconds = length.as_secs();
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (0, hours, minutes, _) => format!("{hours}h{minutes}m"),
        (days, hours, ..) => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use lock_runtime::LockKey;

    use super::*;

    fn held() -> LockState {
        let holder = LockHolder::new()
            .with_client("distlock:7@web-2")
            .with_label("nightly\x1b[31m")
            .with_since(Some(SystemTime::UNIX_EPOCH))
            .with_remaining(Some(Duration::from_millis(28_400)))
            .with_token(FencingToken::from_number(118));
        let waiter = LockWaiter::new().with_client("distlock:8@web-3").with_label("w");
        LockState::held(LockKey::new("user:42").expect("valid"), holder).with_waiters(vec![waiter])
    }

    #[test]
    fn a_lock_is_shown_in_words_without_control_characters() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(200);
        let text = in_words(&held(), Style::Plain, now);
        assert_eq!(
            text,
            "user:42 is held\n  holder     distlock:7@web-2\n  label      nightly\u{fffd}[31m\n  \
             since      1970-01-01T00:00:00.000Z (for 3m20s)\n  remaining  28.4s\n  token      118\n  \
             waiter     distlock:8@web-3 (w)\n"
        );
        let free = LockState::free(LockKey::new("k").expect("valid"));
        assert_eq!(in_words(&free, Style::Plain, now), "k is free\n");
        assert!(in_words(&free, Style::Coloured, now).starts_with("\x1b[1mk\x1b[0m"));
        assert_eq!(
            holder_in_words(&held().holders[0]),
            "distlock:7@web-2 (nightly\u{fffd}[31m) since 1970-01-01T00:00:00.000Z, fencing token 118"
        );
    }

    #[test]
    fn a_list_is_a_table() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(90_001);
        let mut found = Found { locks: vec![held()], has_waiters: true };
        let table = table_of(&found, Style::Plain, now);
        assert_eq!(
            table,
            "KEY      HOLDER            LABEL         FOR   REMAINING  TOKEN  WAITERS\n\
             user:42  distlock:7@web-2  nightly\u{fffd}[31m  1d1h  28.4s      118    1\n"
        );
        found.has_waiters = false;
        assert_eq!(table_of(&found, Style::Plain, now), table, "the scan has shown a waiter");
        found.locks[0].waiters.clear();
        assert!(table_of(&found, Style::Plain, now).ends_with(" 118    -\n"));
        found.locks.clear();
        assert_eq!(table_of(&found, Style::Plain, now), "no lock is held\n");
    }

    #[test]
    fn lengths_are_short() {
        for (seconds, text) in [(0, "0s"), (61, "1m1s"), (3_600, "1h0m"), (90_000, "1d1h")] {
            assert_eq!(length(Duration::from_secs(seconds)), text);
        }
        assert_eq!(remaining(&LockHolder::new()), None);
        assert_eq!(
            remaining(&LockHolder::new().with_remaining(Some(Duration::MAX))),
            Some("without end".into())
        );
    }
}
