//! Charts of the results.

use std::path::Path;

use plotters::{
    coord::ranged1d::{AsRangedCoord, ValueFormatter},
    prelude::*,
};

/// One figure of several contenders in several situations.
pub(crate) struct Chart {
    title: String,
    scale: Scale,
    bars: Vec<Bar>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    /// For contenders that are orders of magnitude apart.
    Logarithmic,
}

struct Bar {
    situation: String,
    contender: String,
    least: f64,
    median: f64,
    most: f64,
}

pub(super) const WIDTH: u32 = 960;
const ROW: u32 = 20;
const HEAD: u32 = 48;
const FOOT: u32 = 34;
const SITUATION: i32 = 12;
const CONTENDER: i32 = 330;
const LEFT: u32 = 340;

/// For a benchmark that draws its plots itself, or none.
pub(crate) const NONE: &[Chart] = &[];

/// What can be drawn below others in one picture.
pub(crate) trait Plot {
    fn is_empty(&self) -> bool;

    fn height(&self) -> u32;

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>);
}

impl Plot for Chart {
    fn is_empty(&self) -> bool {
        self.bars.is_empty()
    }

    fn height(&self) -> u32 {
        HEAD + FOOT + ROW * u32::try_from(self.rows().len()).expect("few bars")
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) {
        let most = self.bars.iter().map(|bar| bar.most).fold(0.0, f64::max);
        match self.scale {
            Scale::Linear => {
                self.draw_on(area, 0.0..(most * 1.12).max(f64::MIN_POSITIVE), 0.0);
            }
            Scale::Logarithmic => {
                let positive = self.bars.iter().map(|bar| bar.least).filter(|value| *value > 0.0);
                let from = 10_f64.powf(positive.fold(most, f64::min).log10().floor());
                self.draw_on(area, (from..most * 3.0).log_scale(), from);
            }
        }
    }
}

impl Chart {
    /// The title names the unit, and which direction is better.
    pub(crate) fn new(title: &str, scale: Scale) -> Self {
        Self { title: title.to_owned(), scale, bars: Vec::new() }
    }

    /// A bar to the median of the rounds, with a whisker from the least of them to the most.
    pub(crate) fn bar(&mut self, situation: &str, contender: &str, rounds: &[f64]) {
        let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = rounds.iter().copied().fold(0.0, f64::max);
        self.bars.push(Bar {
            situation: situation.to_owned(),
            contender: contender.to_owned(),
            least,
            median: super::median(rounds),
            most,
        });
    }

    /// In the order of their colours; that of this library is the same in all charts.
    fn contenders(&self) -> Vec<&str> {
        let mut names = vec!["lock-runtime"];
        for bar in &self.bars {
            if !names.contains(&bar.contender.as_str()) {
                names.push(&bar.contender);
            }
        }
        names
    }

    /// A row for each bar, and an empty one before each new situation.
    fn rows(&self) -> Vec<Option<&Bar>> {
        let mut rows: Vec<Option<&Bar>> = Vec::new();
        for (n, bar) in self.bars.iter().enumerate() {
            if n > 0 && self.bars[n - 1].situation != bar.situation {
                rows.push(None);
            }
            rows.push(Some(bar));
        }
        rows
    }

    fn draw_on<DB: DrawingBackend, X>(
        &self,
        area: &DrawingArea<DB, plotters::coord::Shift>,
        values: X,
        from: f64,
    ) where
        DB::ErrorType: 'static,
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
    {
        let rows = self.rows();
        let count = i32::try_from(rows.len()).expect("few bars");
        let mut chart = ChartBuilder::on(area)
            .margin_right(24)
            .margin_top(HEAD)
            .x_label_area_size(FOOT)
            .set_label_area_size(LabelAreaPosition::Left, LEFT)
            .build_cartesian_2d(values, f64::from(count)..0.0)
            .expect("the area is large enough");
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(225, 225, 225))
            .x_labels(6)
            .x_label_formatter(&|value| short(*value))
            .x_label_style(("sans-serif", 13))
            .draw()
            .expect("svg is text");
        let text = |size: u32| ("sans-serif", size).into_font().color(&RGBColor(40, 40, 40));
        area.draw_text(&self.title, &text(17), (SITUATION, 14)).expect("svg is text");
        let contenders = self.contenders();
        let mut last_situation = "";
        for (n, bar) in rows.iter().enumerate() {
            let Some(bar) = bar else { continue };
            let top = f64::from(i32::try_from(n).expect("few bars"));
            let colour = Palette99::pick(
                contenders.iter().position(|name| *name == bar.contender).expect("it is one"),
            );
            let line = |x: [f64; 2], y: [f64; 2]| {
                PathElement::new(vec![(x[0], y[0]), (x[1], y[1])], RGBColor(60, 60, 60))
            };
            let (least, middle) = (bar.least.max(from), top + 0.5);
            let whisker = [
                line([least, bar.most], [middle; 2]),
                line([least; 2], [top + 0.3, top + 0.7]),
                line([bar.most; 2], [top + 0.3, top + 0.7]),
            ];
            chart
                .draw_series([Rectangle::new(
                    [(from, top + 0.12), (bar.median.max(from), top + 0.88)],
                    colour.mix(0.75).filled(),
                )])
                .expect("svg is text");
            chart.draw_series(whisker).expect("svg is text");
            let (x, y) = chart.backend_coord(&(bar.most.max(from), middle));
            let beside = |anchor| {
                text(12).pos(plotters::style::text_anchor::Pos::new(
                    anchor,
                    plotters::style::text_anchor::VPos::Center,
                ))
            };
            // The root's coordinates, not those of the area.
            let y = y - area.get_base_pixel().1;
            area.draw_text(&short(bar.median), &beside(plotters::style::text_anchor::HPos::Left), (x + 6, y))
                .expect("svg is text");
            area.draw_text(
                &bar.contender,
                &beside(plotters::style::text_anchor::HPos::Right),
                (CONTENDER, y),
            )
            .expect("svg is text");
            if bar.situation != last_situation {
                last_situation = &bar.situation;
                area.draw_text(
                    &bar.situation,
                    &beside(plotters::style::text_anchor::HPos::Left),
                    (SITUATION, y),
                )
                .expect("svg is text");
            }
        }
    }
}

/// Writes the charts, one below the other, as one picture, without those that have nothing to show.
pub(crate) fn write<P: Plot>(path: &Path, charts: &[P]) {
    let charts: Vec<_> = charts.iter().filter(|chart| !chart.is_empty()).collect();
    if charts.is_empty() {
        return;
    }
    let height = charts.iter().map(|chart| chart.height()).sum();
    let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE).expect("svg is text");
    let mut rest = root.clone();
    for chart in charts {
        let (area, below) = rest.split_vertically(chart.height());
        chart.draw(&area);
        rest = below;
    }
    root.present().expect("the folder is writable");
}

/// With about three digits: 0.0042, 0.52, 7.4, 180, 65.1k, 1.1M.
pub(super) fn short(value: f64) -> String {
    let (value, unit) = match value {
        1e6.. => (value / 1e6, "M"),
        1e4.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match value {
        100.0.. => 0,
        10.0.. if unit.is_empty() => 0,
        10.0.. => 1,
        0.1.. => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}
