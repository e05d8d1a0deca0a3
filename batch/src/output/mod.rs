//! The output of a batch: writes one record per input line to files, and reads the records of
//! previous runs.

mod answered_lines;
mod files;
mod record;
mod sink;

pub use answered_lines::{AnsweredLines, ScanError};
pub use files::{OpenError, Outputs};
pub use record::{LineOutcome, ProviderResponse, Record};
pub use sink::{SYNC_EVERY, Sink};
