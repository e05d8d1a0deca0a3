//! Measures the concurrency cap above which the throughput of a language model server no longer
//! rises, and the limit that determines this cap.
//!
//! A sweep sends a constant mix of requests to one server, changes the cap step by step, and
//! evaluates the responses. Data flows in one direction through three parts:
//!
//! 1. [`search`] decides which cap to measure next, and finally computes the answer. It is pure:
//!    every attempt, call and load sample is an input, with its time. It reads no clock and does no
//!    I/O.
//! 2. `driver` carries out the decisions through the production path: a [`tidegate::Gate`] with its
//!    retries and its handling of Retry-After.
//! 3. [`report`] renders the outcome.
//!
//! The parts exchange [`observation`]s and [`search_result`]s.
//!
//! # Terms
//!
//! - **Cap**: the maximum number of concurrent calls, which the gate enforces.
//! - **Call** and **attempt**: a call is one request of the mix with its retries; an attempt is one
//!   HTTP exchange.
//! - **Step**: a period in which one cap is in force and more calls wait than slots are free.
//! - **Position** of an attempt: the number of exchanges that were open just after it was sent,
//!   including itself.
//! - **Throughput**: answered calls per second. **Goodput**: answered calls per second that met the
//!   latency objectives.
//! - **Knee**: the smallest cap whose goodput is within the tolerance of the best goodput.
//! - **Credit**: the unused quota that a rate limit with a token bucket has accumulated, which lets
//!   a burst pass at first.

mod background_writer;
mod clock;
mod config_snippet;
#[cfg(unix)]
mod cpu;
mod driver;
mod endpoint;
mod error;
mod journal;
mod mix;
mod normal_distribution;
pub mod observation;
mod options;
pub mod plan;
mod progress;
pub mod report;
pub mod search;
pub mod search_result;
pub mod spend;
mod sweep;
pub mod sweep_outcome;
mod validity_checks;
mod wait_until;

#[cfg(unix)]
pub use cpu::cpu_monitor;
pub use driver::{CallLine, CpuMonitor, CpuUsage};
pub use endpoint::key_variables::key_env;
pub use endpoint::{Api, Endpoint, redacted_url};
pub use error::SweepError;
pub use mix::{Lengths, MixOptions};
pub use options::SweepOptions;
pub use plan::Plan;
pub use progress::{SweepProgress, SweepState};
pub use search::{Search, SearchAction, SearchSettings};
pub use search_result::{Binding, Estimate, StepResult, StepVerdict, SweepAnswer};
pub use spend::{SweepCeilings, SweepSpend};
pub use sweep::{CALL_LOG_FILE, Sweep};
pub use sweep_outcome::{SweepEnd, SweepOutcome};
