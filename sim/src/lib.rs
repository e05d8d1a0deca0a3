//! A model of a vLLM deployment at the level of engine steps, usable in process and over HTTP.
//!
//! - [`engine`] and [`pool`]: the model itself. No clock, no I/O, no async.
//! - [`Simulator`]: the model on tokio's clock, which answers HTTP requests in process. Under the
//!   paused clock, a run takes virtual time.
//! - [`serve`]: the simulator behind an HTTP server.
//! - [`faults`]: faults to inject, from the start or at run time.
//! - [`scenario`]: how the model's constants were calibrated, and the errors that remain.
//!
//! ```
//! use bytes::Bytes;
//! use tidegate_sim::{SimConfig, Simulator};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let simulator = Simulator::new(SimConfig::calibrated())?;
//! let body = r#"{"model": "sim", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}"#;
//! let request = http::Request::post("/v1/chat/completions").body(Bytes::from(body))?;
//! let response = simulator.respond(request).await?;
//! assert_eq!(response.status(), 200);
//! # Ok(())
//! # }
//! ```

mod api;
pub mod config;
mod config_error;
mod driver;
pub mod engine;
pub mod faults;
mod json_schema;
pub mod pool;
pub mod scenario;
mod server;

pub use self::config::{Adapter, SimConfig};
pub use self::config_error::ConfigError;
pub use self::driver::{
    AttemptEnd, BodyError, ConnectionError, LoggedAttempt, SimBody, Simulator, Stats, TenantStats,
};
pub use self::faults::Faults;
pub use self::server::{serve, serve_until};
