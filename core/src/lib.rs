//! Tidegate: as many calls to each model as it can take right now.

pub mod config;
pub mod error;
pub mod wire;

pub use config::Config;
pub use error::{Error, ErrorKind, Reason};
