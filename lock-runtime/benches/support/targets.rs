//! Targets of a benchmark, and which of them a run has met.

use std::fmt::Write;

use super::Interval;

/// One requirement on a measured figure. It is judged by the median, and by the lower end of the 95 % interval where
/// that is required too.
#[derive(Debug)]
pub(crate) struct Target {
    name: String,
    measured: Interval,
    bound: Bound,
    lower_end: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    pub(crate) fn at_least(name: impl Into<String>, measured: Interval, least: f64) -> Self {
        Self { name: name.into(), measured, bound: Bound::AtLeast(least), lower_end: None }
    }

    pub(crate) fn at_most(name: impl Into<String>, measured: Interval, most: f64) -> Self {
        Self { name: name.into(), measured, bound: Bound::AtMost(most), lower_end: None }
    }

    /// Requires the lower end of the interval to be above `bound` as well.
    pub(crate) fn lower_end_above(mut self, bound: f64) -> Self {
        self.lower_end = Some(bound);
        self
    }

    /// A figure that is not a number misses.
    fn is_met(&self) -> bool {
        let median = match self.bound {
            Bound::AtLeast(least) => self.measured.median >= least,
            Bound::AtMost(most) => self.measured.median <= most,
        };
        median && self.lower_end.is_none_or(|bound| self.measured.from > bound)
    }

    fn row(&self) -> String {
        let required = match self.bound {
            Bound::AtLeast(least) => format!("≥ {least}"),
            Bound::AtMost(most) => format!("≤ {most}"),
        };
        let lower_end = self.lower_end.map(|bound| format!(", lower end > {bound}")).unwrap_or_default();
        format!("| {} | {:.3} | {required}{lower_end} |\n", self.name, self.measured)
    }
}

/// Two Markdown tables: the targets missed, then those met.
pub(crate) fn verdict(targets: &[Target]) -> String {
    let (met, missed): (Vec<_>, Vec<_>) = targets.iter().partition(|target| target.is_met());
    let mut text = format!("targets missed: {}, met: {}\n", missed.len(), met.len());
    for (title, targets) in [("missed", missed), ("met", met)] {
        if !targets.is_empty() {
            let rows: String = targets.into_iter().map(Target::row).collect();
            write!(text, "\n| {title} | measured [95 %] | required |\n| --- | --- | --- |\n{rows}").unwrap();
        }
    }
    text
}
