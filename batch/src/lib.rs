//! Sends a file of requests to a provider through a [`tidegate::Gate`], with OpenAI's batch format
//! as input and output.
//!
//! [`Lines`] reads the file, [`Batch`] sends the requests, and a [`Sink`] writes the answers.
//! Memory is bounded even for endless input, except for 16 bytes per line, which are needed to
//! recognize a repeated `custom_id`.
//!
//! # Recovery after a crash
//!
//! Output files only grow. They contain one record per line, and each record contains the number
//! and the checksum of the input line that it answers. The output therefore is its own journal:
//! [`Outputs::resume`] reads it, and returns the [`AnsweredLines`], which are not sent again.
//! [`OpenOutputs::truncate`] removes an incomplete end. If the process is killed at any time, no
//! line is lost and no line has two records. A call that was in flight is sent again, and the
//! provider may bill it twice.

mod blocking_files;
mod compression;
mod input;
mod input_summary;
mod line_error;
mod output;
mod read_ahead;
mod reorder;
mod request_url;
mod run;

pub use blocking_files::{read_lines, write_records};
pub use compression::Compression;
pub use input::{Checksum, ENDPOINT_PATHS, Line, Lines, Request, RequestOverrides, parse_request};
pub use input_summary::{Survey, survey};
pub use line_error::LineError;
pub use output::{
    AnsweredLines, LineOutcome, OpenError, OpenOutputs, Outputs, ProviderResponse, Record, SYNC_EVERY,
    ScanError, Sink,
};
pub use read_ahead::{OpenCalls, ReadAhead};
pub use reorder::ReorderBuffer;
pub use run::{
    Batch, BatchEnd, BatchOptions, BatchProgress, Ceilings, Prices, RunError, Spend, Stop, WriteJob,
};
