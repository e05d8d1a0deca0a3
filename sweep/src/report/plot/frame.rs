//! Elements that the plots share: plot area, axes and legend.

use maud::{Markup, html};

use super::scale::Scale;
use crate::search_result::SweepAnswer;

/// Height of text, in pixels.
pub(super) const TEXT_HEIGHT: f64 = 12.0;
/// Assumed mean width of a letter, as a multiple of [`TEXT_HEIGHT`]. It overestimates the width of
/// most texts, so that two labels do not overlap.
const LETTER_WIDTH: f64 = 0.58;
/// Height of a row of the legend, in pixels.
const ROW_HEIGHT: f64 = 18.0;

/// Returns an upper estimate of the width of a text, in pixels.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * TEXT_HEIGHT * LETTER_WIDTH
}

/// Formats a length in pixels with at most one decimal.
pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Appearance of a legend entry.
#[derive(Clone, Copy)]
pub(super) enum Swatch {
    Line,
    Dash,
    Dot,
    Box,
    Cross,
    Hollow,
}

/// Legend entry: its appearance, the CSS class of its colour, and its name.
pub(super) type Entry = (Swatch, &'static str, String);

/// Size of a plot, and the area of its marks within it. All values are in pixels from the top left
/// corner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
    /// Vertical distance from `top` up to the text with the unit of the left axis.
    pub(super) above: f64,
}

impl Area {
    /// Returns the area below `legend` in a plot of this size. Leaves margins for the numbers on
    /// the left and at the bottom.
    pub(super) fn below(legend: &[Entry], width: f64, height: f64) -> Self {
        let rows = legend_positions(legend, width).last().map_or(0.0, |(_, y)| y + ROW_HEIGHT);
        Self {
            width,
            height,
            left: 52.0,
            right: width - 14.0,
            top: rows + 2.0 * ROW_HEIGHT,
            bottom: height - 42.0,
            above: 13.0,
        }
    }

    /// Moves the top of the area down by a line of text, which leaves space for the label of the
    /// recommended cap.
    pub(super) fn with_name(self) -> Self {
        Self { top: self.top + 0.8 * ROW_HEIGHT, above: self.above + 0.8 * ROW_HEIGHT, ..self }
    }

    pub(super) fn x(&self) -> (f64, f64) {
        (self.left, self.right)
    }

    pub(super) fn y(&self) -> (f64, f64) {
        (self.bottom, self.top)
    }

    /// Returns the maximum number of labels that fit on the bottom axis, at least 2.
    pub(super) fn max_labels(&self) -> usize {
        ((self.right - self.left) / 58.0).floor().max(2.0) as usize
    }
}

/// Returns the position of the top left corner of each legend entry. Entries that do not fit into a
/// row start a new one.
fn legend_positions(legend: &[Entry], width: f64) -> Vec<(f64, f64)> {
    let (mut x, mut y) = (2.0, 0.0);
    let mut positions = Vec::with_capacity(legend.len());
    for (_, _, name) in legend {
        let take = 24.0 + text_width(name) + 10.0;
        if x > 2.0 && x + take > width {
            (x, y) = (2.0, y + ROW_HEIGHT);
        }
        positions.push((x, y));
        x += take;
    }
    positions
}

/// Renders the legend at the top of a plot.
pub(super) fn legend(entries: &[Entry], width: f64) -> Markup {
    html! {
        g class="tg-legend" {
            @for ((sample, class, name), (x, y)) in entries.iter().zip(legend_positions(entries, width)) {
                (swatch(*sample, class, x, y + ROW_HEIGHT / 2.0))
                (text("tg-text", x + 24.0, y + ROW_HEIGHT / 2.0 + 4.0, "start", name))
            }
        }
    }
}

fn swatch(sample: Swatch, class: &str, x: f64, y: f64) -> Markup {
    match sample {
        Swatch::Line => line(&format!("tg-curve {class}"), (x, y), (x + 18.0, y)),
        Swatch::Dash => line(&format!("tg-curve tg-dash {class}"), (x, y), (x + 18.0, y)),
        Swatch::Dot => dot(&format!("tg-dot {class}"), (x + 9.0, y), 4.0),
        Swatch::Hollow => dot(&format!("tg-hollow {class}"), (x + 9.0, y), 4.0),
        Swatch::Cross => cross(class, (x + 9.0, y)),
        Swatch::Box => html! {
            rect class={ "tg-fill " (class) } x=(px(x + 3.0)) y=(px(y - 6.0)) width="12" height="12" {}
        },
    }
}

/// Renders the left axis: a grid line and a formatted number per tick, and `unit` above.
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

/// Renders the bottom axis: a tick and a formatted number for each tick of `scale`, and the name of
/// the axis, `name`, below. Omits numbers that would overlap others. The numbers of the ticks in
/// `first` have priority.
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

/// Maximum share of the axis that the band of the interval may cover. A wider band would hide that
/// the plot shows little besides the interval.
const MAX_BAND_SHARE: f64 = 0.6;

/// Renders the recommended cap as a vertical line and its confidence interval as a band. Omits a
/// band that would cover more than [`MAX_BAND_SHARE`] of the axis. Adds a label with the cap if
/// `named` is `true`. Renders nothing if no cap is recommended.
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
            @if to - from <= MAX_BAND_SHARE * (area.right - area.left) {
                rect class="tg-band" x=(px(from)) y=(px(area.top)) width=(px((to - from).max(0.0))) height=(px(area.bottom - area.top)) {}
            }
            (line("tg-mark", (x, area.top), (x, area.bottom)))
            @if named {
                (text("tg-text tg-strong", x.clamp(area.left + half, area.right - half), area.top - 8.0, "middle", &label))
            }
        }
    }
}

/// Returns the recommended cap and its interval as text, for screen readers.
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

/// Renders a line through points, or nothing for fewer than two points.
pub(super) fn curve(class: &str, points: &[(f64, f64)]) -> Markup {
    let through: Vec<String> = points.iter().map(|(x, y)| format!("{},{}", px(*x), px(*y))).collect();
    html! { @if points.len() > 1 { polyline class=(class) points=(through.join(" ")) {} } }
}

pub(super) fn text(class: &str, x: f64, y: f64, anchor: &str, text: &str) -> Markup {
    html! { text class=(class) x=(px(x)) y=(px(y)) text-anchor=(anchor) { (text) } }
}
