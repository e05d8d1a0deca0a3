//! What is written: one record a line, to files that only ever grow, and what such a file says of the run that it is from.

mod answered_lines;
mod files;
mod record;
mod sink;

pub use answered_lines::{AnsweredLines, ScanError};
pub use files::{OpenError, Outputs};
pub use record::{LineError, LineOutcome, ProviderResponse, Record};
pub use sink::{SYNC_EVERY, Sink};
