//! Draws the runs of a scenario on one seed, in three panels: limits, calls served in time, and the
//! user's TTFT.

use std::ops::Range;
use std::time::Duration;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::series::LineSeries;
use tidegate_sim::scenario::quantile;

use super::figures::in_time;
use super::prepared_scenario::PreparedScenario;
use super::run_records::{CallResult, RunInputs, RunResult};
use super::workload::Arrival;
use crate::Fallible;
use crate::chart_colours::GREY;

/// A contender's run, and the colour and panels in which it is drawn.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) color: RGBColor,
    /// Whether the run is drawn only in the panel of limits. If `false`, it is drawn in all three
    /// panels.
    pub(crate) limit_only: bool,
    pub(crate) played: RunResult,
}

const SIZE: (u32, u32) = (900, 760);
/// Calls are counted in windows of this many seconds.
const WINDOW: u64 = 10;
/// The highest TTFT of the chart, in seconds. Higher values are drawn at this height.
const LONGEST_S: f64 = 8.0;

type Panel<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the runs and returns the text of an SVG file.
pub(crate) fn draw(prepared: &PreparedScenario, inputs: &RunInputs, lines: &[Line]) -> Fallible<String> {
    let mut text = String::new();
    let drawn = {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let drawn = root
            .fill(&WHITE)
            .map_err(|error| error.to_string())
            .and_then(|()| panels(&root, prepared, inputs, lines).map_err(|error| error.to_string()));
        drawn.and_then(|()| root.present().map_err(|error| error.to_string()))
    };
    drawn.map_err(|error| format!("{}: cannot be drawn: {error}", prepared.scenario.name))?;
    Ok(text)
}

fn panels(root: &Panel, prepared: &PreparedScenario, inputs: &RunInputs, lines: &[Line]) -> Fallible<()> {
    let until = inputs.until.as_secs();
    let steps: Vec<f64> = prepared.phases().iter().skip(1).map(|(from, _)| from.as_secs_f64()).collect();
    let areas = root.split_evenly((3, 1));
    let [limits, served, ttft] = areas.as_slice() else { return Err("a picture has three panels".into()) };
    let most = oracle_most(lines) * 2.0;
    let each_second = |line: &Line| {
        let seconds = line.played.seconds.iter().enumerate();
        seconds.map(|(second, at)| (second as f64, (at.limit as f64).min(most))).collect()
    };
    let all: Vec<Curve> = lines.iter().map(|line| Curve::of(line, each_second(line))).collect();
    let title = format!("{}: limit (seed {})", prepared.scenario.name, inputs.seed);
    panel(limits, &title, until, 0.0..most, &steps, &all)?;

    let whole: Vec<&Line> = lines.iter().filter(|line| !line.limit_only).collect();
    let offered =
        windows(until, inputs.arrivals.iter().map(|arrival| (arrival.at, ())), |calls| rate(calls.len()));
    let highest = offered.iter().map(|(_, rate)| *rate).fold(1.0, f64::max);
    let mut curves = vec![Curve { name: "offered", color: GREY, points: offered }];
    curves.extend(whole.iter().map(|line| {
        let good = calls(inputs, line).filter(|(arrival, result)| in_time(inputs, arrival, result));
        Curve::of(line, windows(until, good.map(|(arrival, _)| (arrival.at, ())), |calls| rate(calls.len())))
    }));
    panel(served, "calls/s offered, and served in time", until, 0.0..highest * 1.4, &steps, &curves)?;

    let objective = inputs.terms.objective.as_secs_f64();
    let line = vec![(0.0, objective), (until as f64, objective)];
    let mut curves = vec![Curve { name: "objective", color: GREY, points: line }];
    curves.extend(whole.iter().map(|line| {
        let waits = calls(inputs, line).filter_map(|(arrival, result)| {
            Some((arrival.at, (result.first_token? - arrival.at).as_secs_f64()))
        });
        let p99 = |mut waits: Vec<f64>| quantile(&mut waits, 0.99).min(LONGEST_S);
        Curve::of(line, windows(until, waits, p99).into_iter().filter(|(_, s)| s.is_finite()).collect())
    }));
    panel(ttft, "user TTFT, p99 of 10 s, in seconds", until, 0.0..LONGEST_S, &steps, &curves)
}

/// Returns the highest limit in the oracle's run, but at least 2. Returns 2 if `lines` does not
/// contain the oracle.
fn oracle_most(lines: &[Line]) -> f64 {
    let most = |line: &Line| line.played.seconds.iter().map(|second| second.limit).max().unwrap_or(1) as f64;
    lines.iter().find(|line| line.name == "oracle").map_or(1.0, most).max(2.0)
}

fn calls<'a>(inputs: &'a RunInputs, line: &'a Line) -> impl Iterator<Item = (&'a Arrival, &'a CallResult)> {
    inputs.arrivals.iter().zip(&line.played.results)
}

fn rate(calls: usize) -> f64 {
    calls as f64 / WINDOW as f64
}

/// Groups calls into windows of [`WINDOW`] seconds by their arrival. Returns, for each window, its
/// middle in seconds since the start of the run, and the value that `of` computes from its calls.
fn windows<T>(
    until: u64,
    calls: impl Iterator<Item = (Duration, T)>,
    of: impl Fn(Vec<T>) -> f64,
) -> Vec<(f64, f64)> {
    let mut windows: Vec<Vec<T>> = (0..until.div_ceil(WINDOW)).map(|_| Vec::new()).collect();
    for (at, call) in calls {
        if let Some(window) = windows.get_mut((at.as_secs() / WINDOW) as usize) {
            window.push(call);
        }
    }
    let middle = |place: usize| (place as f64 + 0.5) * WINDOW as f64;
    windows.into_iter().enumerate().map(|(place, calls)| (middle(place), of(calls))).collect()
}

struct Curve {
    name: &'static str,
    color: RGBColor,
    points: Vec<(f64, f64)>,
}

impl Curve {
    fn of(line: &Line, points: Vec<(f64, f64)>) -> Self {
        Self { name: line.name, color: line.color, points }
    }
}

fn panel(
    area: &Panel,
    title: &str,
    until: u64,
    range: Range<f64>,
    steps: &[f64],
    curves: &[Curve],
) -> Fallible<()> {
    let failed = |error: DrawingAreaErrorKind<std::io::Error>| error.to_string();
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 15))
        .margin(6)
        .x_label_area_size(22)
        .y_label_area_size(44)
        .build_cartesian_2d(0.0..until as f64, range.clone())
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(230, 230, 230))
        .y_labels(6)
        .x_label_formatter(&|s| format!("{s:.0} s"))
        .y_label_formatter(&|y| y.to_string())
        .draw()
        .map_err(failed)?;
    for step in steps {
        let line = LineSeries::new([(*step, range.start), (*step, range.end)], GREY.mix(0.6));
        chart.draw_series(line).map_err(failed)?;
    }
    for curve in curves {
        let color = curve.color;
        chart
            .draw_series(LineSeries::new(curve.points.iter().copied(), color.stroke_width(2)))
            .map_err(failed)?
            .label(curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    let mut labels = chart.configure_series_labels();
    let labels = labels.position(SeriesLabelPosition::UpperRight).background_style(WHITE.mix(0.8));
    labels.draw().map_err(failed)?;
    Ok(())
}
