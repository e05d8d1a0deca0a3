//! The report of a sweep: what came of it, for people ([`html`], [`figure`], [`card`]), spreadsheets ([`csv`]) and programs ([`json`]).
//!
//! Each is a pure function of the [`SweepOutcome`]: no clock, no file, no network. What an outcome does not hold is not told, so that neither keys nor prompts can
//! be. All text from outside is escaped by [`maud`], which knows of no other way to put it in.
//!
//! The page is one file that asks for nothing else: style and script are inside, plots are SVG. Without its script it says the same.
//!
//! # The keys of [`json`]
//!
//! Those of [`SweepOutcome`], as they are spelled there: `format` (a number; another one is another shape), `answer`, `steps`, `spend`, `checks`, `lines`, `ended`,
//! `provenance`, `calls`,
//! `series`. Durations are seconds, rates a second (`rpm` and `tpm`: a minute), shares 0 to 1. What is not known is `null`.

mod by_cap;
mod csv;
mod format;
mod page;
mod plot;

pub use self::csv::csv;
pub use self::page::{card, html};
pub use self::plot::Figure;
use crate::outcome::SweepOutcome;

/// The outcome as JSON, by the keys that the module tells.
pub fn json(outcome: &SweepOutcome) -> String {
    // Only a map whose keys are no text could fail to be JSON, and there is none.
    serde_json::to_string_pretty(outcome).unwrap_or_default()
}

/// One figure as an SVG document of its own, for a notebook or a paper; it follows the reader's light or dark.
pub fn figure(outcome: &SweepOutcome, figure: Figure) -> String {
    plot::document(outcome, figure)
}
