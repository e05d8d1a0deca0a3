//! Elements that all plots share: the area, axes, legend and description.

use maud::{Markup, html};

use super::scale::Scale;
use crate::result::SweepAnswer;

/// Text height in pixels, and mean width of a letter relative to it. Rather too wide, so that two
/// texts never overlap.
pub(super) const TEXT: f64 = 12.0;
const LETTER: f64 = 0.58;
const ROW: f64 = 18.0;

/// Returns the maximum width of a text, in pixels.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * TEXT * LETTER
}

/// Formats a length in pixels.
pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Appearance of a legend entry.
#[derive(Clone, Copy)]
pub(super) enum Sample {
    RequestLine,
    Dash,
    Dot,
    Box,
    Cross,
    Hollow,
}

/// A legend entry: its appearance, the CSS class of its colour, and its name.
pub(super) type Entry = (Sample, &'static str, String);

/// The area of a plot within its margins, in pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
    /// Distance of the axis unit above the area.
    pub(super) above: f64,
}

impl Area {
    /// Returns the area below a legend, with margins for the numbers on the left and at the bottom.
    pub(super) fn below(legend: &[Entry], width: f64, height: f64) -> Self {
        let rows = placed(legend, width).last().map_or(0.0, |(_, y)| y + ROW);
        Self {
            width,
            height,
            left: 52.0,
            right: width - 14.0,
            top: rows + 2.0 * ROW,
            bottom: height - 42.0,
            above: 13.0,
        }
    }

    /// Adds a row above the area for the name of the answer.
    pub(super) fn with_name(self) -> Self {
        Self { top: self.top + 0.8 * ROW, above: self.above + 0.8 * ROW, ..self }
    }

    pub(super) fn x(&self) -> (f64, f64) {
        (self.left, self.right)
    }

    pub(super) fn y(&self) -> (f64, f64) {
        (self.bottom, self.top)
    }

    /// Returns how many numbers fit on the bottom axis.
    pub(super) fn room(&self) -> usize {
        ((self.right - self.left) / 58.0).floor().max(2.0) as usize
    }
}

/// Returns the position of each legend entry, in rows.
fn placed(legend: &[Entry], width: f64) -> Vec<(f64, f64)> {
    let (mut x, mut y) = (2.0, 0.0);
    let mut places = Vec::with_capacity(legend.len());
    for (_, _, name) in legend {
        let take = 24.0 + text_width(name) + 10.0;
        if x > 2.0 && x + take > width {
            (x, y) = (2.0, y + ROW);
        }
        places.push((x, y));
        x += take;
    }
    places
}

/// Renders the legend at the top.
pub(super) fn legend(entries: &[Entry], width: f64) -> Markup {
    html! {
        g class="tg-legend" {
            @for ((sample, class, name), (x, y)) in entries.iter().zip(placed(entries, width)) {
                (swatch(*sample, class, x, y + ROW / 2.0))
                (text("tg-text", x + 24.0, y + ROW / 2.0 + 4.0, "start", name))
            }
        }
    }
}

fn swatch(sample: Sample, class: &str, x: f64, y: f64) -> Markup {
    match sample {
        Sample::RequestLine => line(&format!("tg-curve {class}"), (x, y), (x + 18.0, y)),
        Sample::Dash => line(&format!("tg-curve tg-dash {class}"), (x, y), (x + 18.0, y)),
        Sample::Dot => dot(&format!("tg-dot {class}"), (x + 9.0, y), 4.0),
        Sample::Hollow => dot(&format!("tg-hollow {class}"), (x + 9.0, y), 4.0),
        Sample::Cross => cross(class, (x + 9.0, y)),
        Sample::Box => html! {
            rect class={ "tg-fill " (class) } x=(px(x + 3.0)) y=(px(y - 6.0)) width="12" height="12" {}
        },
    }
}

/// Renders the left axis with grid lines, and its unit above.
pub(super) fn left_axis(area: &Area, scale: &Scale, unit: &str, number: impl Fn(f64) -> String) -> Markup {
    html! {
        g class="tg-axis" {
            (text("tg-unit", 2.0, area.top - area.above, "start", unit))
            @for tick in &scale.ticks {
                @let y = scale.at(*tick);
                (line("tg-grid", (area.left, y), (area.right, y)))
                (text("tg-text", area.left - 7.0, y + 4.0, "end", &number(*tick)))
            }
        }
    }
}

/// Renders the bottom axis with its name. If not all numbers fit, those of `first` have priority.
pub(super) fn bottom_axis(
    area: &Area,
    scale: &Scale,
    name: &str,
    first: &[f64],
    number: impl Fn(f64) -> String,
) -> Markup {
    let mut numbers: Vec<(f64, String)> = Vec::new();
    for tick in first.iter().chain(&scale.ticks) {
        let (x, label) = (scale.at(*tick), number(*tick));
        let apart = |(other, text): &(f64, String)| {
            (x - other).abs() > (text_width(&label) + text_width(text)) / 2.0 + 5.0
        };
        if x + text_width(&label) / 2.0 < area.width && numbers.iter().all(apart) {
            numbers.push((x, label));
        }
    }
    html! {
        g class="tg-axis" {
            (line("tg-base", (area.left, area.bottom), (area.right, area.bottom)))
            @for tick in &scale.ticks {
                (line("tg-base", (scale.at(*tick), area.bottom), (scale.at(*tick), area.bottom + 4.0)))
            }
            @for (x, label) in &numbers { (text("tg-text", *x, area.bottom + 19.0, "middle", label)) }
            (text("tg-unit", area.right, area.bottom + 35.0, "end", name))
        }
    }
}

/// Renders the answer on an axis of caps: a line, with its interval as a band.
pub(super) fn answer(area: &Area, caps: &Scale, answer: &SweepAnswer, named: bool) -> Markup {
    let Some(cap) = answer.cap else { return html! {} };
    let x = caps.at(cap as f64);
    let (low, high) = answer.interval.unwrap_or((cap, cap));
    let from = caps.at(low as f64) - 2.0;
    let to = if answer.open_above { caps.ends().1 } else { caps.at(high as f64) + 2.0 };
    let label = format!("cap {cap}");
    let half = text_width(&label) / 2.0;
    html! {
        g class="tg-answer" {
            title { (answer_text(answer)) }
            rect class="tg-band" x=(px(from)) y=(px(area.top)) width=(px((to - from).max(0.0))) height=(px(area.bottom - area.top)) {}
            (line("tg-mark", (x, area.top), (x, area.bottom)))
            @if named {
                (text("tg-text tg-strong", x.clamp(area.left + half, area.right - half), area.top - 8.0, "middle", &label))
            }
        }
    }
}

/// Returns the answer and its interval as text.
fn answer_text(answer: &SweepAnswer) -> String {
    match (answer.cap, answer.interval) {
        (None, _) => "no answer".to_owned(),
        (Some(cap), None) => format!("answer: cap {cap}"),
        (Some(cap), Some((low, _))) if answer.open_above => format!("answer: cap {cap}, {low} or more"),
        (Some(cap), Some((low, high))) => format!("answer: cap {cap}, interval {low} to {high}"),
    }
}

pub(super) fn line(class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> Markup {
    html! { line class=(class) x1=(px(x1)) y1=(px(y1)) x2=(px(x2)) y2=(px(y2)) {} }
}

pub(super) fn dot(class: &str, (x, y): (f64, f64), radius: f64) -> Markup {
    html! { circle class=(class) cx=(px(x)) cy=(px(y)) r=(px(radius)) {} }
}

pub(super) fn cross(class: &str, (x, y): (f64, f64)) -> Markup {
    let (l, r, t, b) = (px(x - 4.0), px(x + 4.0), px(y - 4.0), px(y + 4.0));
    html! { path class={ "tg-cross " (class) } d={ "M" (l) " " (t) "L" (r) " " (b) "M" (r) " " (t) "L" (l) " " (b) } {} }
}

/// Renders a line through points, or nothing for a single point.
pub(super) fn curve(class: &str, points: &[(f64, f64)]) -> Markup {
    let through: Vec<String> = points.iter().map(|(x, y)| format!("{},{}", px(*x), px(*y))).collect();
    html! { @if points.len() > 1 { polyline class=(class) points=(through.join(" ")) {} } }
}

pub(super) fn text(class: &str, x: f64, y: f64, anchor: &str, text: &str) -> Markup {
    html! { text class=(class) x=(px(x)) y=(px(y)) text-anchor=(anchor) { (text) } }
}
