//! A file of requests through a gate: OpenAI's batch format in and out.
//!
//! [`Lines`] reads, [`Batch`] asks, a [`Sink`] writes, each bounded: of an input that never ends no more is held than calls under way, and 16 bytes a line to know a
//! `custom_id` again.
//!
//! # After a crash
//!
//! The output only grows, a line at a time, and each of its lines names the line of the input that it answers, and that one's checksum. So it is its own journal:
//! [`Outputs::resume`] reads what is there, cuts off a torn end, and the lines that it [`Found`] are not asked for again. Killed at any moment, no line is lost, and none
//! is there twice. A call that was in flight at that moment is made again: its provider may bill it twice.

mod address;
mod fault;
mod feed;
mod format;
mod input;
mod order;
mod output;
mod run;
mod survey;
mod window;

pub use fault::Fault;
pub use feed::{feed, write};
pub use format::Format;
pub use input::{Line, Lines, PATHS, Request, Sum, Wishes, request};
pub use order::Order;
pub use output::{Answer, Found, OpenError, Outcome, Outputs, Record, SYNC_EVERY, ScanError, Sink};
pub use run::{Batch, Ceilings, Ended, Job, Options, Prices, Progress, RunError, Spend};
pub use survey::{Survey, survey};
pub use window::{Open, Window};
