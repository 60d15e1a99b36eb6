//! Keeps the warnings and errors of the library, so that they are printed in their place.

use std::{
    fmt::{Debug, Write as _},
    mem,
    sync::{Mutex, PoisonError},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Installs the subscriber.
pub(crate) fn install() {
    tracing::subscriber::set_global_default(Warnings).expect("the only subscriber");
}

/// Returns the lines since the last call.
pub(crate) fn take() -> Vec<String> {
    mem::take(&mut LINES.lock().unwrap_or_else(PoisonError::into_inner))
}

struct Warnings;

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= Level::WARN
            && metadata.target().starts_with("lock_runtime")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let Line { message, fields } = line;
        let text = format!("{} {message}{fields}", event.metadata().level());
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
