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

mod checks;
mod clock;
#[cfg(unix)]
mod cpu;
mod drive;
mod endpoint;
mod error;
pub mod found;
mod journal;
mod lines;
mod mix;
mod normal;
mod options;
pub mod outcome;
pub mod plan;
mod progress;
pub mod report;
pub mod search;
pub mod seen;
pub mod spend;
mod sweep;
mod writer;

#[cfg(unix)]
pub use cpu::processors;
pub use drive::{CallLine, Cpu};
pub use endpoint::{Api, Endpoint};
pub use error::SweepError;
pub use found::{Answer, Binding, Estimate, StepResult, Verdict};
pub use mix::{Lengths, MixOptions};
pub use options::Options;
pub use outcome::{Ended, Outcome};
pub use plan::Plan;
pub use progress::{Progress, State};
pub use search::{Move, Search, Settings};
pub use spend::{Ceilings, Spend};
pub use sweep::{CALLS, Sweep};
