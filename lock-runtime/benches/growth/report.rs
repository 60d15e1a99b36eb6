//! The table and the plots of a curve.

use crate::support::{
    curve::{Curves, exponent},
    median, publish,
};

/// The slope over all sizes.
const EXPONENT: &str = "exponent";
/// The slope from the last size but one to the last, which fixed costs at the small sizes cannot hide.
const AT_THE_END: &str = "last step";

/// A column of the table.
pub(crate) struct Quantity {
    /// With its unit.
    name: &'static str,
    /// The line in the plot with this title, for a cost per unit: it should not depend on the size.
    plot: Option<(&'static str, &'static str)>,
}

impl Quantity {
    /// A cost per unit, as the line `line` in the plot with the title `plot`.
    pub(crate) const fn cost(name: &'static str, plot: &'static str, line: &'static str) -> Self {
        Self { name, plot: Some((plot, line)) }
    }

    /// A number that is only in the table.
    pub(crate) const fn fact(name: &'static str) -> Self {
        Self { name, plot: None }
    }
}

/// The measurements of a curve.
pub(crate) struct Report {
    name: &'static str,
    /// The unit of the sizes.
    size: &'static str,
    quantities: &'static [Quantity],
    points: Vec<Point>,
}

struct Point {
    series: &'static str,
    size: u64,
    /// The values of each quantity.
    rounds: Vec<Vec<f64>>,
}

impl Report {
    pub(crate) fn new(name: &'static str, size: &'static str, quantities: &'static [Quantity]) -> Self {
        Self { name, size, quantities, points: Vec::new() }
    }

    /// Adds a round, with a value for each quantity.
    pub(crate) fn add(&mut self, series: &'static str, size: u64, values: &[f64]) {
        assert_eq!(values.len(), self.quantities.len());
        let known = self.points.iter().position(|point| (point.series, point.size) == (series, size));
        let at = known.unwrap_or_else(|| {
            self.points.push(Point { series, size, rounds: vec![Vec::new(); values.len()] });
            self.points.len() - 1
        });
        for (rounds, value) in self.points[at].rounds.iter_mut().zip(values) {
            rounds.push(*value);
        }
        let shown: Vec<String> = self
            .quantities
            .iter()
            .zip(values)
            .map(|(q, value)| format!("{} {}", q.name, number(*value)))
            .collect();
        eprintln!("{} {series} {size}: {}", self.name, shown.join(", "));
    }

    /// Publishes the table, with the exponents below the sizes of each series, and the plots.
    pub(crate) fn publish(&self) {
        let mut series: Vec<&str> = self.points.iter().map(|point| point.series).collect();
        series.sort_unstable();
        series.dedup();
        let mut rows = Vec::new();
        let mut plots: Vec<(&str, Curves)> = Vec::new();
        for name in &series {
            let mut points: Vec<&Point> = self.points.iter().filter(|point| point.series == *name).collect();
            points.sort_by_key(|point| point.size);
            for point in &points {
                let cells = point.rounds.iter().map(|rounds| with_spread(rounds));
                rows.push([(*name).to_owned(), point.size.to_string()].into_iter().chain(cells).collect());
            }
            let mut exponents = [EXPONENT, AT_THE_END].map(|row| vec![(*name).to_owned(), row.to_owned()]);
            for (n, quantity) in self.quantities.iter().enumerate() {
                let Some((title, line)) = quantity.plot else {
                    for row in &mut exponents {
                        row.push(String::new());
                    }
                    continue;
                };
                let medians: Vec<(f64, f64)> =
                    points.iter().map(|point| (point.size as f64, median(&point.rounds[n]))).collect();
                let end = &medians[medians.len().saturating_sub(2)..];
                for (row, slope) in exponents.iter_mut().zip([exponent(&medians), exponent(end)]) {
                    row.push(slope.map_or_else(|| "–".into(), |slope| format!("{slope:+.2}")));
                }
                let line = [*name, line].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
                let at = plots.iter().position(|(known, _)| *known == title).unwrap_or_else(|| {
                    plots.push((title, Curves::new(title, self.size)));
                    plots.len() - 1
                });
                for point in &points {
                    plots[at].1.point(&line.join(": "), point.size as f64, &point.rounds[n]);
                }
            }
            rows.extend(exponents);
        }
        let mut header = vec!["", self.size];
        header.extend(self.quantities.iter().map(|quantity| quantity.name));
        // Without series, no column for them.
        if series == [""] {
            header.remove(0);
            for row in &mut rows {
                row.remove(0);
            }
        }
        let plots: Vec<Curves> = plots.into_iter().map(|(_, plot)| plot).collect();
        publish(&format!("growth_{}", self.name), &header, &rows, &plots, &[]);
    }
}

/// The median, with the least and the most of several rounds.
fn with_spread(rounds: &[f64]) -> String {
    let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if least < most {
        format!("{} [{}–{}]", number(median(rounds)), number(least), number(most))
    } else {
        number(median(rounds))
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "–".into(),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        0.1.. => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
