//! Metrics and models of self-hosted engines: vLLM's `/metrics` and `/v1/models`, and SGLang's
//! where they agree.

mod metrics;
mod models;
#[cfg(test)]
mod tests;

pub use metrics::{EngineMetrics, parse_metrics};
pub use models::{Model, parse_models};
