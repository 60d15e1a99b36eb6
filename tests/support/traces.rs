//! Reads every trace event of a run and searches it for secrets.

use std::{
    fmt::{Debug, Write},
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

static LEAKS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static SEEN: AtomicU64 = AtomicU64::new(0);
static OUTAGES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());
static TABLES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());
static LOSSES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Reads all events of targets that begin with `targets`, until the end of the process. All tests of a program call this
/// with the same arguments.
pub fn watch(targets: &'static str, secrets: &'static [&'static str]) {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        tracing::subscriber::set_global_default(Reader { targets, secrets }).expect("the only subscriber");
    });
}

/// Returns the number of traces read, and those that contain a secret.
pub fn found() -> (u64, Vec<String>) {
    (SEEN.load(Ordering::Relaxed), LEAKS.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Returns the levels of the log lines so far about outages of the store at `address`.
pub fn outages_of(address: &str) -> Vec<Level> {
    let lines = OUTAGES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().filter(|(_, line)| line.contains(address)).map(|(level, _)| *level).collect()
}

/// Returns the warnings of the library so far about the server at `address`.
pub fn warnings_of(address: &str) -> Vec<String> {
    let lines = WARNINGS.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().filter(|line| line.contains(address)).cloned().collect()
}

/// Returns the log lines so far of this level about the tables of a server of PostgreSQL, by its folder.
pub fn tables_of(folder: &str, level: Level) -> Vec<String> {
    let lines = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    let of_server =
        lines.iter().filter(|(of, line)| *of == level && line.contains(folder) && line.contains("_locks"));
    of_server.map(|(_, line)| line.clone()).collect()
}

/// Returns the reasons in the log lines so far about losses of the lock `key`.
pub fn losses_of(key: &str) -> Vec<String> {
    let losses = LOSSES.lock().unwrap_or_else(PoisonError::into_inner);
    losses.iter().filter(|(lost, _)| lost == key).map(|(_, why)| why.clone()).collect()
}

struct Reader {
    targets: &'static str,
    secrets: &'static [&'static str],
}

impl Reader {
    fn read(&self, text: &str) {
        SEEN.fetch_add(1, Ordering::Relaxed);
        if self.secrets.iter().any(|secret| text.contains(secret)) || has_owner_token(text) {
            LEAKS.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned());
        }
    }
}

pub fn has_owner_token(text: &str) -> bool {
    owner_token(text).is_some()
}

/// Returns the first run of 128 bits in hexadecimal digits, or the first UUID with a number, as Redisson's owners have.
pub fn owner_token(text: &str) -> Option<&str> {
    // Quickly, because each trace is read: nothing in the text is as long as a token.
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' | b'-' | b':');
    if !text.as_bytes().split(|byte| !is_part(byte)).any(|run| run.len() >= 32) {
        return None;
    }
    let is_hex = |c: char| c.is_ascii_hexdigit();
    let numbered = |run: &&str| run.split_once(':').is_some_and(|(id, _)| id.len() == 36);
    let mut with_dashes = text.split(|c: char| !is_hex(c) && c != '-' && c != ':');
    text.split(|c| !is_hex(c)).find(|run| run.len() >= 32).or_else(|| with_dashes.find(numbered))
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

/// The fields of a line about one lost lock. Of a burst, most lines are left to a summary.
#[derive(Default)]
struct Loss {
    key: Option<String>,
    why: Option<String>,
    is_summary: bool,
}

impl Visit for Loss {
    fn record_str(&mut self, field: &Field, value: &str) {
        if matches!(field.name(), "why" | "reason") {
            self.why = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "key" | "line" => self.key = Some(format!("{value:?}")),
            "lost" => self.is_summary = true,
            "message" => {
                self.why.get_or_insert_with(|| format!("{value:?}"));
            }
            _ => {}
        }
    }
}

impl Subscriber for Reader {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with(self.targets)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = Text::default();
        span.record(&mut text);
        self.read(&text.0);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut text = Text::default();
        values.record(&mut text);
        self.read(&text.0);
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        self.read(&text.0);
        if *event.metadata().level() == Level::WARN && event.metadata().target().starts_with("lock_runtime") {
            WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).push(text.0.clone());
        }
        let lines = match event.metadata().target() {
            "lock_runtime::backend::common::outage" => Some(&OUTAGES),
            target if target.ends_with("postgres::fitness") => Some(&TABLES),
            _ => None,
        };
        if let Some(lines) = lines {
            let line = (*event.metadata().level(), text.0);
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
        let is_loss = match event.metadata().target() {
            // What a release found out is there as well, at `DEBUG`, if it is no loss.
            "lock_runtime::engine::loss" => *event.metadata().level() <= Level::WARN,
            // The lines of a burst that are left to a summary are there at `DEBUG`.
            "lock_runtime::log_limiter" => true,
            _ => false,
        };
        if is_loss {
            let mut loss = Loss::default();
            event.record(&mut loss);
            if let Loss { key: Some(key), why: Some(why), is_summary: false } = loss
                && !why.is_empty()
            {
                LOSSES.lock().unwrap_or_else(PoisonError::into_inner).push((key, why));
            }
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
