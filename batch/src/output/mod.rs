//! The output of a batch: writes one record per input line to files, and reads the records of
//! previous runs.

mod answered_lines;
mod crash_safe_writer;
mod files;
mod output_record;

pub use answered_lines::{AnsweredLines, ScanError};
pub use crash_safe_writer::{SYNC_EVERY, Sink};
pub use files::{OpenError, OpenOutputs, Outputs};
pub use output_record::{LineOutcome, ProviderResponse, Record};
