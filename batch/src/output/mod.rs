//! The output: one record per line, in files that only grow, and the records of previous runs.

mod answered_lines;
mod files;
mod record;
mod sink;

pub use answered_lines::{AnsweredLines, ScanError};
pub use files::{OpenError, Outputs};
pub use record::{LineOutcome, ProviderResponse, Record};
pub use sink::{SYNC_EVERY, Sink};
