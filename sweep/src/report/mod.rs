//! Reports of a sweep: for people ([`html`], [`figure`], [`card`]), spreadsheets ([`csv()`]) and
//! programs ([`json`]).
//!
//! Each report is a pure function of the [`SweepOutcome`]: no clock, no file, no network. An
//! outcome contains neither keys nor prompts, so a report cannot either. [`maud`] escapes all text
//! from outside.
//!
//! The page is one file that loads nothing else: style and script are inline, plots are SVG.
//! Without its script, the page shows the same content.
//!
//! # Keys of [`json`]
//!
//! The keys are the field names of [`SweepOutcome`]: `format` (a version number), `answer`,
//! `steps`, `spend`, `checks`, `lines`, `ended`, `provenance`, `calls` and `series`. Durations are
//! in seconds, rates per second (`rpm` and `tpm` per minute), shares from 0 to 1. Unknown values
//! are `null`.

mod by_cap;
mod csv;
mod format;
mod page;
mod plot;

pub use self::csv::csv;
pub use self::page::{card, html};
pub use self::plot::Figure;
use crate::outcome::SweepOutcome;

/// Returns the outcome as JSON, with the keys that the module documents.
pub fn json(outcome: &SweepOutcome) -> String {
    // Only a map with keys that are not strings could fail to serialize, and there is none.
    serde_json::to_string_pretty(outcome).unwrap_or_default()
}

/// Returns one figure as a standalone SVG document, for a notebook or a paper. The figure follows
/// the reader's light or dark scheme.
pub fn figure(outcome: &SweepOutcome, figure: Figure) -> String {
    plot::document(outcome, figure)
}
