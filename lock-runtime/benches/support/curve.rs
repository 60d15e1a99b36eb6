//! Curves on logarithmic axes: how a cost grows with the size of the work.

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{
    median,
    plot::{Plot, WIDTH, short},
};

/// One or more costs with the same unit, over the same sizes.
pub(crate) struct Curves {
    title: String,
    size: String,
    lines: Vec<Line>,
}

struct Line {
    name: String,
    points: Vec<Point>,
}

struct Point {
    size: f64,
    least: f64,
    median: f64,
    most: f64,
}

const HEIGHT: u32 = 330;
const HEAD: u32 = 44;
const LEGEND: u32 = 320;
const ENTRY: i32 = 42;

impl Curves {
    /// The title names the cost and its unit; `size` is the label of the horizontal axis.
    pub(crate) fn new(title: &str, size: &str) -> Self {
        Self { title: title.to_owned(), size: size.to_owned(), lines: Vec::new() }
    }

    /// Adds a point at the median of the rounds, with a whisker from the least of them to the most.
    pub(crate) fn point(&mut self, line: &str, size: f64, rounds: &[f64]) {
        let median = median(rounds);
        // A logarithmic axis has no place for the others.
        if !(median > 0.0 && median.is_finite()) {
            return;
        }
        let least = rounds.iter().copied().filter(|value| *value > 0.0).fold(median, f64::min);
        let most = rounds.iter().copied().fold(median, f64::max);
        let at = self.lines.iter().position(|known| known.name == line).unwrap_or_else(|| {
            self.lines.push(Line { name: line.to_owned(), points: Vec::new() });
            self.lines.len() - 1
        });
        self.lines[at].points.push(Point { size, least, median, most });
    }

    fn points(&self) -> impl Iterator<Item = &Point> + Clone {
        self.lines.iter().flat_map(|line| &line.points)
    }
}

impl Plot for Curves {
    fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn height(&self) -> u32 {
        HEIGHT
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) {
        let text = |size: u32| ("sans-serif", size).into_font().color(&RGBColor(40, 40, 40));
        area.draw_text(&self.title, &text(17), (12, 14)).expect("svg is text");
        let sizes = self.points().map(|point| point.size);
        let sizes = sizes.clone().fold(f64::INFINITY, f64::min)..sizes.fold(0.0, f64::max);
        let least = self.points().map(|point| point.least).fold(f64::INFINITY, f64::min);
        let most = self.points().map(|point| point.most).fold(0.0, f64::max);
        let (from, to) = (10_f64.powf(least.log10().floor()), 10_f64.powf(most.log10().ceil()));
        let mut chart = ChartBuilder::on(area)
            .margin_top(HEAD)
            .margin_left(8)
            .margin_right(LEGEND)
            .x_label_area_size(48)
            .y_label_area_size(64)
            .build_cartesian_2d(
                (sizes.start / 1.3..sizes.end * 1.3).log_scale(),
                (from..to.max(from * 10.0)).log_scale(),
            )
            .expect("the area is large enough");
        chart
            .configure_mesh()
            .light_line_style(RGBColor(240, 240, 240))
            .bold_line_style(RGBColor(225, 225, 225))
            .x_desc(&self.size)
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| short(*value))
            .axis_desc_style(("sans-serif", 14))
            .label_style(("sans-serif", 13))
            .draw()
            .expect("svg is text");
        let beside = |size: u32| text(size).pos(Pos::new(HPos::Left, VPos::Center));
        let legend = i32::try_from(WIDTH - LEGEND).expect("small") + 16;
        for (n, line) in self.lines.iter().enumerate() {
            let colour = Palette99::pick(n);
            let at = |point: &Point| (point.size, point.median);
            let medians: Vec<_> = line.points.iter().map(at).collect();
            chart
                .draw_series([PathElement::new(medians.clone(), colour.stroke_width(2))])
                .expect("svg is text");
            let whisker = |point: &Point| {
                PathElement::new(
                    vec![(point.size, point.least), (point.size, point.most)],
                    colour.stroke_width(1),
                )
            };
            chart.draw_series(line.points.iter().map(whisker)).expect("svg is text");
            let dot = |point: &Point| Circle::new(at(point), 3, colour.filled());
            chart.draw_series(line.points.iter().map(dot)).expect("svg is text");
            let y = i32::try_from(HEAD).expect("small") + 12 + ENTRY * i32::try_from(n).expect("few lines");
            area.draw(&PathElement::new(vec![(legend, y), (legend + 22, y)], colour.stroke_width(3)))
                .expect("svg is text");
            area.draw_text(&line.name, &beside(14), (legend + 30, y)).expect("svg is text");
            let end = &medians[medians.len().saturating_sub(2)..];
            let growth = match (exponent(&medians), exponent(end)) {
                (Some(all), Some(end)) => format!("exponent {all:+.2}, last step {end:+.2}"),
                _ => "one size only".into(),
            };
            area.draw_text(&growth, &beside(13), (legend + 30, y + 17)).expect("svg is text");
        }
    }
}

/// Returns the slope of the line of least squares through `log(cost)` over `log(size)`: 0 for a cost that does not
/// depend on the size, 1 for one in proportion to it. `None` if fewer than two sizes have a cost above zero.
pub(crate) fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let logs: Vec<(f64, f64)> = points
        .iter()
        .filter(|(size, cost)| *size > 0.0 && *cost > 0.0 && cost.is_finite())
        .map(|(size, cost)| (size.ln(), cost.ln()))
        .collect();
    let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / logs.len().max(1) as f64;
    let (x, y) = (mean(|log| log.0), mean(|log| log.1));
    let spread: f64 = logs.iter().map(|log| (log.0 - x).powi(2)).sum();
    let shared: f64 = logs.iter().map(|log| (log.0 - x) * (log.1 - y)).sum();
    (spread > 0.0).then(|| shared / spread)
}
