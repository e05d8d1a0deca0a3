//! Finds the knee: the cap at which a server of language models serves the most, and what binds there.
//!
//! A sweep holds the mix of requests constant under a fixed backlog, moves the cap, and looks. Three parts, one direction:
//!
//! 1. [`search`] decides, and is pure: it is told of every attempt, call and pulse, with their times, and answers which cap to hold next, for how long, and at last
//!    the answer, with an interval and what binds. No clock, no I/O, no async.
//! 2. `drive` does what it says, through the production path: a [`tidegate::Gate`], its retries, its Retry-After and all.
//! 3. [`report`] writes what came of it.
//!
//! What passes between them is in [`seen`] (what happened) and [`found`] (what follows).

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
