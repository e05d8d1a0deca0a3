//! An engine model of vLLM.
pub mod config;
pub mod engine;
pub mod pool;
pub mod scenario;
pub use config::SimConfig;
