//! Servers for the tests and experiments of Tidegate's own crates.
//!
//! The simulator is a `Transport`, so it needs no socket, and tests can run on tokio's paused
//! clock. [`RedisServer`] is a real process.

mod redis_server;
mod simulator;
mod virtual_time;

pub use redis_server::{RedisServer, free_port};
pub use simulator::{constant_steps, respond, simulator_transport};
pub use virtual_time::run_paused;
