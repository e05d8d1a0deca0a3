//! Callers that go away: at every stage in virtual time, and as the upstream sees it over real sockets.

mod sockets;
mod stages;

use crate::Fallible;
use crate::report::Report;

pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("cancel", [stages::SEED]);
    stages::measure(&mut report)?;
    sockets::measure(&mut report)?;
    Ok(report)
}
