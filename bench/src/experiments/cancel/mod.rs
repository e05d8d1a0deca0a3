//! Cancels calls at every stage: in virtual time, to check that they leave no slots and calls
//! behind, and over real sockets, to measure how soon the upstream sees the cancellation.

mod sockets;
mod stages;

use crate::Fallible;
use crate::report::Report;

/// Runs both parts, in virtual time and over sockets, and returns the report.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = measure_virtual()?;
    sockets::measure(&mut report)?;
    Ok(report)
}

/// Runs only the part in virtual time, and returns its report.
pub(crate) fn measure_virtual() -> Fallible<Report> {
    let mut report = Report::new("cancel", [stages::SEED]);
    stages::measure(&mut report)?;
    Ok(report)
}
