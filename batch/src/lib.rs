//! A file of requests through a gate: OpenAI's batch format in and out.
//!
//! [`Lines`] reads, [`Batch`] asks, a [`Sink`] writes, each bounded: of an input that never ends no more is held than calls under way, and 16 bytes a line to know a
//! `custom_id` again.
//!
//! # After a crash
//!
//! The output only grows, a line at a time, and each of its lines names the line of the input that it answers, and that one's checksum. So it is its own journal:
//! [`Outputs::resume`] reads what is there, cuts off a torn end, and the lines that it [`AnsweredLines`] are not asked for again. Killed at any moment, no line is lost, and none
//! is there twice. A call that was in flight at that moment is made again: its provider may bill it twice.

mod compression;
mod file_threads;
mod input;
mod output;
mod read_ahead;
mod reorder;
mod request_url;
mod run;
mod survey;

pub use compression::Compression;
pub use file_threads::{read_lines, write_records};
pub use input::{Checksum, ENDPOINT_PATHS, Line, Lines, Request, RequestOverrides, parse_request};
pub use output::{
    AnsweredLines, LineError, LineOutcome, OpenError, Outputs, ProviderResponse, Record, SYNC_EVERY,
    ScanError, Sink,
};
pub use read_ahead::{OpenCalls, ReadAhead};
pub use reorder::ReorderBuffer;
pub use run::{Batch, BatchEnd, BatchOptions, BatchProgress, Ceilings, Prices, RunError, Spend, WriteJob};
pub use survey::{Survey, survey};
