//! Draws the results of a workload: p99 TTFT and prefix hits, by number of clients.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::workload::Workload;
use crate::Fallible;

/// The figures of a chooser with one number of clients.
pub(crate) struct Point {
    pub(crate) short: &'static str,
    pub(crate) p99_s: f64,
    pub(crate) hit_rate: f64,
}

/// The choosers in the chart: short name, label and colour. Readers with colour blindness can
/// distinguish the colours. The last one is drawn on top.
const DRAWN: [(&str, &str, RGBColor); 6] = [
    ("random", "random", RGBColor(170, 170, 170)),
    ("p2c", "power of two, own counts", RGBColor(204, 121, 167)),
    ("tree", "longest match", RGBColor(230, 159, 0)),
    ("hashing", "hashing, bounded", RGBColor(0, 158, 115)),
    ("oracle-2", "oracle", RGBColor(60, 60, 60)),
    ("ours", "ours", RGBColor(0, 114, 178)),
];
const SIZE: (u32, u32) = (960, 320);
/// The width of both panels, in pixels. The names of the choosers are to the right of them.
const PANELS: u32 = 760;

type Panel<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = (usize, Vec<Point>);

/// Draws the figures, and returns the text of an SVG file.
pub(crate) fn draw(workload: Workload, by_clients: &[Drawn]) -> Fallible<String> {
    let mut text = String::new();
    let drawn = {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let drawn = root.fill(&WHITE).map_err(|error| error.to_string()).and_then(|()| {
            let (panels, names) = root.split_horizontally(PANELS);
            legend(&names)?;
            let (left, right) = panels.split_horizontally(PANELS / 2);
            let highest =
                by_clients.iter().flat_map(|(_, points)| points).map(|point| point.p99_s).fold(1.0, f64::max);
            let title = format!("{}: p99 TTFT, s", workload.name());
            panel(&left, &title, (0.5..highest * 1.3).log_scale(), by_clients, |point| point.p99_s)?;
            panel(&right, "prefix hits, %", 0.0..100.0, by_clients, |point| 100.0 * point.hit_rate)
        });
        drawn.and_then(|()| root.present().map_err(|error| error.to_string()))
    };
    drawn.map_err(|error| format!("{}: cannot be drawn: {error}", workload.name()))?;
    Ok(text)
}

fn panel<Y>(
    area: &Panel,
    title: &str,
    range: Y,
    by_clients: &[Drawn],
    of: fn(&Point) -> f64,
) -> Result<(), String>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let failed = |error: DrawingAreaErrorKind<std::io::Error>| error.to_string();
    let places: Range<f64> = -0.2..by_clients.len() as f64 - 0.8;
    let count = |place: &f64| {
        let at = place.round();
        let known = by_clients.get(at as usize).filter(|_| (place - at).abs() < 0.01 && at >= 0.0);
        known.map_or_else(String::new, |(clients, _)| clients.to_string())
    };
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 15))
        .margin(6)
        .x_label_area_size(34)
        .y_label_area_size(44)
        .build_cartesian_2d(places, range)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(230, 230, 230))
        .x_labels(3)
        .y_labels(6)
        .x_desc("clients")
        .x_label_formatter(&count)
        .y_label_formatter(&|y| y.to_string())
        .draw()
        .map_err(failed)?;
    for (short, _, color) in DRAWN {
        let at = |(place, (_, points)): (usize, &Drawn)| {
            let point = points.iter().find(|point| point.short == short)?;
            Some((place as f64, of(point)))
        };
        let line: Vec<(f64, f64)> = by_clients.iter().enumerate().filter_map(at).collect();
        let dots = line.iter().map(|at| Circle::new(*at, 3, color.filled()));
        chart.draw_series(dots).map_err(failed)?;
        chart.draw_series(LineSeries::new(line.iter().copied(), color.stroke_width(2))).map_err(failed)?;
    }
    Ok(())
}

fn legend(area: &Panel) -> Result<(), String> {
    for (place, (_, name, color)) in DRAWN.iter().rev().enumerate() {
        let y = 50 + 20 * place as i32;
        let line = PathElement::new([(8, y), (30, y)], color.stroke_width(2));
        area.draw(&line).map_err(|error| error.to_string())?;
        let text = Text::new(*name, (38, y - 6), ("sans-serif", 13));
        area.draw(&text).map_err(|error| error.to_string())?;
    }
    Ok(())
}
