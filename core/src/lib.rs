//! Tidegate: as many calls to each model as it can take right now.

pub mod admission;
pub mod backoff;
pub mod body;
pub mod budget;
pub mod client;
pub mod config;
pub mod context;
pub mod cooldown;
pub mod error;
pub mod fairness;
pub mod gate;
pub mod schedule;
#[cfg(test)]
mod testing;
pub mod tool;
pub mod transport;

pub use body::{RequestBody, ResponseBody};
pub use client::Client;
pub use config::Config;
pub use context::{Context, Lane, Timeouts};
pub use error::{Error, ErrorKind, Reason};
pub use gate::Gate;
pub use transport::Transport;
