//! The plots of the report, as SVG.
//!
//! They are rendered without a plotting library, because such libraries write colours into each
//! mark. These plots use CSS classes, so that the same SVG works in light mode, in dark mode and in
//! print. Each mark has a text description.

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
use super::steps_by_cap::{StepsAtCap, by_cap};
use crate::sweep_outcome::SweepOutcome;

/// Style sheet of the plots.
pub(super) const STYLE: &str = include_str!("plot.css");

/// A plot that a report can contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Throughput and goodput against the cap, with confidence intervals.
    Throughput,
    /// Throughput and goodput against the cap, for caps within a factor of 1.4 of the recommended
    /// one.
    Around,
    /// Latency (p50 and p95) against throughput.
    Tradeoff,
    /// Time to first token against the cap.
    Ttft,
    /// Time between output tokens against the cap.
    Tpot,
    /// Shares of answered, retried and failed calls per cap.
    Calls,
    /// Slots in use as a share of the cap, and the share of time in which slots were free although
    /// nothing limited the calls.
    Held,
    /// Calls in flight and waiting over time.
    Timeline,
}

impl Figure {
    /// All figures, in the order of the page.
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

    /// Returns the name of the figure in HTML identifiers and in the Python package.
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

    /// Returns the title of the figure.
    pub fn title(self) -> &'static str {
        match self {
            Self::Throughput => "Throughput and goodput against cap",
            Self::Around => "Around the answer",
            Self::Tradeoff => "Latency against throughput",
            Self::Ttft => "Time to first token (TTFT)",
            Self::Tpot => "Time per output token (TPOT)",
            Self::Calls => "Outcomes of calls",
            Self::Held => "Use of the cap",
            Self::Timeline => "In flight and queue over time",
        }
    }
}

/// Content of a plot, from which [`Plot::svg`] renders it.
pub(super) struct Plot {
    entries: Vec<Entry>,
    area: Area,
    marks: Markup,
    /// Description of the content for screen readers.
    description: String,
    /// Sentence that is added to the caption, or `None` if nothing has to be added.
    pub(super) note: Option<String>,
}

impl Plot {
    /// Renders the plot as an `svg` element. `id` must be unique on the page. `style` is a style
    /// sheet to include in the element, or `None` if the page has one.
    pub(super) fn svg(&self, figure: Figure, id: &str, style: Option<&str>) -> Markup {
        let Area { width, height, .. } = self.area;
        html! {
            svg class="tg-plot" xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (px(width)) " " (px(height)) }
                role="img" aria-labelledby={ "tg-" (id) "-title tg-" (id) "-desc" } {
                title id={ "tg-" (id) "-title" } { (figure.title()) }
                desc id={ "tg-" (id) "-desc" } { (self.description) }
                @if let Some(style) = style { style { (PreEscaped(style)) } }
                (legend(&self.entries, width))
                (self.marks)
            }
        }
    }
}

/// Returns the plot of a figure, `width` pixels wide, or `None` if the outcome has no data for it.
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

/// Returns a figure as a standalone SVG document. Without data, the document contains a sentence
/// instead of a plot.
pub(super) fn document(outcome: &SweepOutcome, figure: Figure) -> String {
    let width = if matches!(figure, Figure::Throughput | Figure::Timeline) { 760.0 } else { 520.0 };
    let plot = plot(outcome, figure, width).unwrap_or_else(|| empty_plot(width));
    plot.svg(figure, figure.name(), Some(STYLE)).into_string()
}

fn empty_plot(width: f64) -> Plot {
    let area = Area { width, height: 60.0, left: 0.0, right: width, top: 0.0, bottom: 60.0, above: 0.0 };
    let description = "Nothing was measured.".to_owned();
    let marks = frame::text("tg-text", 12.0, 34.0, "start", &description);
    Plot { entries: Vec::new(), area, marks, description, note: None }
}

/// Returns the scale of the caps, and a bottom axis with a tick at each measured cap. If numbers
/// would overlap, those of the recommended, the lowest and the highest cap have priority.
fn cap_axis(outcome: &SweepOutcome, caps: &[StepsAtCap<'_>], area: &Area) -> (scale::Scale, Markup) {
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
