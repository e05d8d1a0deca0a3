//! The plots, as SVG. Written here and not by a plotting library: those put colours into each mark, and these are classes, so that one page is light, dark and
//! print; and each mark says its figures to whoever points at it or cannot see it.

mod call_outcomes;
mod durations;
mod frame;
mod occupancy;
mod scale;
mod step_marks;
mod throughput;
mod timeline;
mod tradeoff;

use maud::{Markup, PreEscaped, html};

use self::frame::{Area, Entry, legend, px};
use super::by_cap::{Pooled, by_cap};
use crate::outcome::SweepOutcome;

/// The colours of plots and what they follow: for the page, and inside each document of its own.
pub(super) const STYLE: &str = include_str!("plot.css");

/// What is plotted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Throughput and goodput against the cap, with intervals.
    Throughput,
    /// The same, of the caps around the answer.
    Around,
    /// Latency against throughput, with the caps.
    Tradeoff,
    /// Time to first token against the cap.
    Ttft,
    /// Time between tokens against the cap.
    Tpot,
    /// What became of calls, for each cap.
    Calls,
    /// Slots held, as a share of the cap, and the gap fraction.
    Held,
    /// Slots and queue over time.
    Timeline,
}

impl Figure {
    /// All of them, as the page has them.
    pub const ALL: [Self; 8] = [
        Self::Throughput,
        Self::Around,
        Self::Tradeoff,
        Self::Ttft,
        Self::Tpot,
        Self::Calls,
        Self::Held,
        Self::Timeline,
    ];

    /// What programs call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Around => "around",
            Self::Tradeoff => "tradeoff",
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::Calls => "calls",
            Self::Held => "held",
            Self::Timeline => "timeline",
        }
    }

    /// What people call it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Throughput => "Throughput and goodput against cap",
            Self::Around => "Around the answer",
            Self::Tradeoff => "Latency against throughput",
            Self::Ttft => "Time to first token (TTFT)",
            Self::Tpot => "Time per output token (TPOT)",
            Self::Calls => "What became of calls",
            Self::Held => "Whether the cap was held",
            Self::Timeline => "In flight and queue over time",
        }
    }
}

/// A plot before it is on a page.
pub(super) struct Plot {
    entries: Vec<Entry>,
    area: Area,
    marks: Markup,
    /// What it shows, for those who cannot see it.
    told: String,
    /// What is to be said below it.
    pub(super) note: Option<String>,
}

impl Plot {
    /// The `svg` element; `id` is one of its own on the page.
    pub(super) fn svg(&self, figure: Figure, id: &str, style: Option<&str>) -> Markup {
        let Area { width, height, .. } = self.area;
        html! {
            svg class="tg-plot" xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (px(width)) " " (px(height)) }
                role="img" aria-labelledby={ "tg-" (id) "-title tg-" (id) "-desc" } {
                title id={ "tg-" (id) "-title" } { (figure.title()) }
                desc id={ "tg-" (id) "-desc" } { (self.told) }
                @if let Some(style) = style { style { (PreEscaped(style)) } }
                (legend(&self.entries, width))
                (self.marks)
            }
        }
    }
}

/// One plot, of this width; `None`: there is nothing to plot.
pub(super) fn plot(outcome: &SweepOutcome, figure: Figure, width: f64) -> Option<Plot> {
    let caps = by_cap(outcome);
    if caps.is_empty() {
        return None;
    }
    match figure {
        Figure::Throughput => throughput::plot(outcome, &caps, width),
        Figure::Around => throughput::around(outcome, caps, width),
        Figure::Tradeoff => tradeoff::plot(outcome, &caps, width),
        Figure::Ttft => durations::ttft(outcome, &caps, width),
        Figure::Tpot => durations::tpot(outcome, &caps, width),
        Figure::Calls => call_outcomes::plot(outcome, &caps, width),
        Figure::Held => occupancy::plot(outcome, &caps, width),
        Figure::Timeline => timeline::plot(outcome, width),
    }
}

/// One figure as a document. Where there is nothing to plot it says so.
pub(super) fn document(outcome: &SweepOutcome, figure: Figure) -> String {
    let width = if matches!(figure, Figure::Throughput | Figure::Timeline) { 760.0 } else { 520.0 };
    let plot = plot(outcome, figure, width).unwrap_or_else(|| nothing(width));
    plot.svg(figure, figure.name(), Some(STYLE)).into_string()
}

fn nothing(width: f64) -> Plot {
    let area = Area { width, height: 60.0, left: 0.0, right: width, top: 0.0, bottom: 60.0, above: 0.0 };
    let told = "Nothing was measured.".to_owned();
    let marks = frame::text("tg-text", 12.0, 34.0, "start", &told);
    Plot { entries: Vec::new(), area, marks, told, note: None }
}

/// An axis of caps: a tick at each that was tried, and the answer's number before all others.
fn cap_axis(outcome: &SweepOutcome, caps: &[Pooled<'_>], area: &Area) -> (scale::Scale, Markup) {
    let tried: Vec<usize> = caps.iter().map(|pooled| pooled.cap).collect();
    let scale = scale::Scale::caps(&tried, area.x());
    let first: Vec<f64> = [outcome.answer.cap.as_ref(), tried.first(), tried.last()]
        .into_iter()
        .flatten()
        .filter(|cap| tried.contains(cap))
        .map(|cap| *cap as f64)
        .collect();
    let axis = frame::bottom_axis(area, &scale, "cap (slots)", &first, super::format::short);
    (scale, axis)
}
