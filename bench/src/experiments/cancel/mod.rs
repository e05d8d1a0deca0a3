//! Cancelled calls, at every stage in virtual time, and as the upstream sees them over real
//! sockets.

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
