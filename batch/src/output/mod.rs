//! What is written: one record a line, to files that only ever grow, and what such a file says of the run that it is from.

mod files;
mod record;
mod scan;
mod sink;

pub use files::{OpenError, Outputs};
pub use record::{Answer, Outcome, Record};
pub use scan::{Found, ScanError};
pub use sink::{SYNC_EVERY, Sink};
