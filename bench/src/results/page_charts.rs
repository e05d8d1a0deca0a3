//! Draws the charts of `bench/RESULTS.md`.

use std::collections::BTreeMap;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde_json::Value;

use super::page::number;
use super::stored_result::Stored;
use crate::Fallible;
use crate::chart_colours::{BLACK, BLUE, GREY, ORANGE};

const WIDTH: u32 = 900;
/// Height of a row in pixels.
const ROW: i32 = 22;
/// Width of the labels on the left, in pixels.
const LABELS: i32 = 320;
/// Space above the rows for title and legend, in pixels.
const HEAD: i32 = 64;
/// Space below the rows for the axis, in pixels.
const FOOT: i32 = 34;
const MARGIN: i32 = 24;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A chart with one labelled row per item. All rows share a horizontal axis.
struct Chart {
    title: String,
    legend: Vec<(&'static str, RGBColor)>,
    rows: Vec<(String, Vec<Mark>)>,
    /// The values at the ends of the axis. They must be positive if the axis is logarithmic.
    range: Range<f64>,
    logarithmic: bool,
    ticks: Vec<(f64, &'static str)>,
}

/// A bar or a dot in a row of a chart.
struct Mark {
    value: f64,
    color: RGBColor,
    shape: Shape,
}

enum Shape {
    /// A bar from the left end of the axis to the value, with the value as text beside it.
    Bar,
    Dot,
}

/// Draws the charts of the page. `results` has the stored results by experiment. Returns the SVG
/// texts by their paths below `bench/`.
pub(super) fn draw_all(results: &BTreeMap<String, Stored>) -> Fallible<BTreeMap<String, String>> {
    let result =
        |name: &str| results.get(name).ok_or_else(|| format!("bench/results/{name}.json is missing"));
    Ok([
        ("results/noisy-neighbour.svg".to_owned(), draw(&noisy_neighbour(result("noisy-neighbour")?))?),
        ("results/adaptive-goodput.svg".to_owned(), draw(&goodput(result("adaptive")?))?),
    ]
    .into())
}

fn noisy_neighbour(result: &Stored) -> Chart {
    let runs = [
        ("run 1", "alone", GREY),
        ("run 2", "B bursts, without Tidegate", ORANGE),
        ("run 3", "B bursts, with Tidegate", BLUE),
    ];
    let rows = ["A", "C"].into_iter().flat_map(|tenant| {
        runs.into_iter().map(move |(run, what, color)| {
            let value = median(result.figures.get(&format!("{run}, {tenant}: p99 TTFT, ms")));
            (format!("{tenant}: {what}"), vec![Mark { value, color, shape: Shape::Bar }])
        })
    });
    Chart {
        title: "p99 time to first token of tenants A and C, in ms (logarithmic)".to_owned(),
        legend: Vec::new(),
        rows: rows.collect(),
        range: 100.0..100_000.0,
        logarithmic: true,
        ticks: vec![(100.0, "100"), (1000.0, "1,000"), (10_000.0, "10,000"), (100_000.0, "100,000")],
    }
}

fn goodput(result: &Stored) -> Chart {
    const FIGURE: &str = ": goodput / oracle's (all seeds together)";
    let rows = result.figures.iter().filter_map(|(key, ours)| {
        let scenario = key.strip_suffix(FIGURE)?;
        let peers = result.peers.values().map(|peer| (peer.get(key), GREY));
        // The last mark is drawn on top.
        let marks = peers.chain([(Some(ours), BLUE)]).filter(|(value, _)| value.is_some());
        let mark = |(value, color)| Mark { value: median(value), color, shape: Shape::Dot };
        Some((scenario.to_owned(), marks.map(mark).collect()))
    });
    Chart {
        title: "Calls answered in time, as a share of an oracle's, by scenario".to_owned(),
        legend: vec![("Tidegate", BLUE), ("the other controllers and fixed limits", GREY)],
        rows: rows.collect(),
        range: 0.0..1.2,
        logarithmic: false,
        ticks: vec![(0.0, "0"), (0.25, "0.25"), (0.5, "0.5"), (0.75, "0.75"), (1.0, "1")],
    }
}

/// Returns a figure's value, or its median if it has one value per seed. Returns NaN for `None` and
/// for values that are not numbers.
fn median(value: Option<&Value>) -> f64 {
    value.and_then(|value| value.get("median").unwrap_or(value).as_f64()).unwrap_or(f64::NAN)
}

fn draw(chart: &Chart) -> Fallible<String> {
    let mut text = String::new();
    let height = HEAD + ROW * chart.rows.len() as i32 + FOOT;
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height as u32)).into_drawing_area();
        marks(&area, chart, height).map_err(|error| format!("{}: {error}", chart.title))?;
        area.present().map_err(|error| error.to_string())?;
    }
    Ok(text)
}

fn marks(area: &Area, chart: &Chart, height: i32) -> Fallible<()> {
    let failed = |error: DrawingAreaErrorKind<std::io::Error>| error.to_string();
    area.fill(&WHITE).map_err(failed)?;
    let write = |text: &str, at: (i32, i32), horizontal: HPos, size: u32| {
        let style = ("sans-serif", size).into_font().color(&BLACK).pos(Pos::new(horizontal, VPos::Center));
        area.draw(&Text::new(text.to_owned(), at, style)).map_err(failed)
    };
    write(&chart.title, (MARGIN, 20), HPos::Left, 16)?;
    let mut left = LABELS;
    for (name, color) in &chart.legend {
        area.draw(&Circle::new((left, 44), 5, color.filled())).map_err(failed)?;
        write(name, (left + 12, 44), HPos::Left, 13)?;
        left += 40 + 8 * name.len() as i32;
    }
    for (value, label) in &chart.ticks {
        let x = chart.x(*value);
        let line = PathElement::new([(x, HEAD - 6), (x, height - FOOT)], RGBColor(225, 225, 225));
        area.draw(&line).map_err(failed)?;
        write(label, (x, height - FOOT / 2), HPos::Center, 13)?;
    }
    for (place, (label, marks)) in chart.rows.iter().enumerate() {
        let y = HEAD + ROW * place as i32 + ROW / 2;
        write(label, (LABELS - 12, y), HPos::Right, 13)?;
        for mark in marks.iter().filter(|mark| mark.value.is_finite()) {
            let x = chart.x(mark.value);
            match mark.shape {
                Shape::Dot => {
                    area.draw(&Circle::new((x, y), 5, mark.color.filled())).map_err(failed)?;
                }
                Shape::Bar => {
                    let corners = [(LABELS, y - 7), (x, y + 7)];
                    area.draw(&Rectangle::new(corners, mark.color.filled())).map_err(failed)?;
                    write(&number(mark.value), (x + 8, y), HPos::Left, 13)?;
                }
            }
        }
    }
    Ok(())
}

impl Chart {
    /// Returns the horizontal position of a value in pixels. A value outside the range is drawn at
    /// the nearest end.
    fn x(&self, value: f64) -> i32 {
        let scale = |x: f64| if self.logarithmic { x.ln() } else { x };
        let [from, to, at] =
            [self.range.start, self.range.end, value.clamp(self.range.start, self.range.end)].map(scale);
        let width = f64::from(WIDTH as i32 - LABELS - 2 * MARGIN - 20);
        LABELS + ((at - from) / (to - from) * width).round() as i32
    }
}
