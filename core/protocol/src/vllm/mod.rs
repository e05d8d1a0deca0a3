//! Metrics and models of self-hosted engines: vLLM's `/metrics` and `/v1/models`, and SGLang's
//! where they agree.

mod metrics;
mod models;
#[cfg(test)]
mod tests;

pub use metrics::{EngineMetrics, standing};
pub use models::{Model, models};
