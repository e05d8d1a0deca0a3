//! In-process servers for the tests and experiments of Tidegate's own crates.
//!
//! Each server is a `Transport`, so it needs no socket, and tests can run on tokio's paused clock.

mod simulator;
mod virtual_time;

pub use simulator::{constant_steps, respond, simulator_transport};
pub use virtual_time::run_paused;
