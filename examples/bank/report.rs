//! The report at the end.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};

use crate::load::Answers;

/// A phase and its outcome.
#[derive(Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) requests: usize,
    pub(crate) answers: Answers,
    /// Bookings recorded in the accounts' files.
    pub(crate) booked: usize,
}

impl Phase {
    fn succeeded(&self) -> usize {
        self.answers.latencies.len()
    }

    /// Requests that failed, or that no client was left to send.
    pub(crate) fn errors(&self) -> usize {
        self.requests - self.succeeded()
    }

    /// Confirmed bookings that are missing in the files.
    pub(crate) fn lost_updates(&self) -> usize {
        self.succeeded().saturating_sub(self.booked)
    }

    fn column(&self) -> Vec<String> {
        let mut latencies = self.answers.latencies.clone();
        latencies.sort_unstable();
        let percentile = |percent: usize| match latencies.len() {
            0 => "-".into(),
            count => milliseconds(latencies[(count * percent).div_ceil(100) - 1]),
        };
        let seconds = self.answers.took.as_secs_f64();
        let by_process = self.answers.by_server.iter().enumerate();
        let by_process: Vec<_> =
            by_process.map(|(index, entries)| format!("{}: {entries}", index + 1)).collect();
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 requests")]
        let rate = self.succeeded() as f64 / seconds;
        vec![
            self.requests.to_string(),
            self.errors().to_string(),
            self.lost_updates().to_string(),
            format!("{seconds:.2} s"),
            format!("{rate:.0}"),
            percentile(50),
            percentile(99),
            by_process.join("\n"),
        ]
    }
}

/// One column for each phase.
pub(crate) fn table(phases: &[&Phase]) -> Table {
    const ROWS: [&str; 8] =
        ["requests", "errors", "lost updates", "duration", "requests/s", "p50", "p99", "entries by process"];
    let columns: Vec<_> = phases.iter().map(|phase| phase.column()).collect();
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header([""].into_iter().chain(phases.iter().map(|phase| phase.name)));
    for (row, name) in ROWS.into_iter().enumerate() {
        let values = columns.iter().map(|column| column[row].as_str());
        table.add_row([name].into_iter().chain(values));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Sums up the figures; an error if updates were lost or requests failed under the lock.
pub(crate) fn verdict(unlocked: &Phase, locked: &Phase) -> Result<String, String> {
    if locked.lost_updates() > 0 {
        return Err(format!("{} updates were lost under the lock", locked.lost_updates()));
    }
    if locked.errors() > 0 {
        let why = locked.answers.trouble.as_deref().unwrap_or("no reason was given");
        return Err(format!(
            "{} requests failed or were not sent under the lock, for example: {why}",
            locked.errors()
        ));
    }
    if let Some(why) = &unlocked.answers.trouble {
        return Ok(format!(
            "Under the lock no update was lost. Without it, requests failed, for example: {why}"
        ));
    }
    Ok(match unlocked.lost_updates() {
        0 => "Under the lock no update was lost, but without it none was lost either: the requests did not meet. \
              Try fewer --accounts or more --connections."
            .into(),
        lost => format!(
            "Without the lock {lost} of {} updates were lost, under the lock none.",
            unlocked.requests
        ),
    })
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1_000.0)
}
