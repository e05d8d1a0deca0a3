//! Measures the concurrency cap at which a language model server's throughput stops to rise, and
//! the limit that determines it.
//!
//! A sweep keeps a constant mix of requests under a fixed backlog, varies the cap, and evaluates
//! the responses. Data flows in one direction through three parts:
//!
//! 1. [`search`] decides, and is pure. It receives every attempt, call and load sample with their
//!    times, and returns which cap to hold next, and finally the answer with its interval and its
//!    limit. No clock, no I/O, no async.
//! 2. `driver` carries out the decisions through the production path: a [`tidegate::Gate`] with its
//!    retries and its handling of Retry-After.
//! 3. [`report`] renders the outcome.
//!
//! The parts exchange [`observation`]s and [`result`]s.

mod background_writer;
mod checks;
mod clock;
mod config_snippet;
#[cfg(unix)]
mod cpu;
mod driver;
mod endpoint;
mod error;
mod journal;
mod mix;
mod normal;
pub mod observation;
mod options;
pub mod outcome;
pub mod plan;
mod progress;
pub mod report;
pub mod result;
pub mod search;
pub mod spend;
mod sweep;
mod waiting;

#[cfg(unix)]
pub use cpu::cpu_monitor;
pub use driver::{CallLine, CpuMonitor};
pub use endpoint::{Api, Endpoint};
pub use error::SweepError;
pub use mix::{Lengths, MixOptions};
pub use options::SweepOptions;
pub use outcome::{SweepEnd, SweepOutcome};
pub use plan::Plan;
pub use progress::{SweepProgress, SweepState};
pub use result::{Binding, Estimate, StepResult, StepVerdict, SweepAnswer};
pub use search::{Search, SearchAction, SearchSettings};
pub use spend::{SweepCeilings, SweepSpend};
pub use sweep::{CALL_LOG_FILE, Sweep};
