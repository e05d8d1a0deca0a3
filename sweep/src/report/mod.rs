//! Reports of a sweep: for people ([`html`], [`figure`], [`card`]), for spreadsheets ([`csv()`])
//! and for programs ([`json`]).
//!
//! Each report is a pure function of the [`SweepOutcome`]. An outcome contains neither keys nor
//! prompts, so a report contains none either. [`maud`] escapes all text that comes from outside.
//!
//! The HTML page is a single file that loads nothing else: style and script are inline, and plots
//! are SVG. Without its script, the page has the same content.
//!
//! # Keys of [`json`]
//!
//! The keys are the serialized fields of [`SweepOutcome`]: `format` (a version number), `answer`,
//! `steps`, `spend`, `checks`, `lines`, `ended`, `provenance`, `calls` and `series`. Durations are
//! in seconds, rates per second (`rpm` and `tpm` per minute), shares from 0 to 1. Unknown values
//! are `null`.

mod csv;
mod format;
mod page;
mod plot;
mod steps_by_cap;

pub use self::csv::csv;
pub use self::page::{card, html};
pub use self::plot::Figure;
use crate::sweep_outcome::SweepOutcome;

/// Returns the outcome as indented JSON, with the keys that the [module](self) documents.
pub fn json(outcome: &SweepOutcome) -> String {
    // Only a map with keys that are not strings could fail to serialize, and there is none.
    serde_json::to_string_pretty(outcome).unwrap_or_default()
}

/// Returns one figure as a standalone SVG document, for a notebook or a paper. Its colours follow
/// the light or dark scheme of the viewer. If the outcome has no data for the figure, the document
/// says so.
pub fn figure(outcome: &SweepOutcome, figure: Figure) -> String {
    plot::document(outcome, figure)
}
