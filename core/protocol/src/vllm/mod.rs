//! Reads the metrics and the models of self-hosted engines: `/metrics` and `/v1/models` of vLLM,
//! and of SGLang as far as its formats agree.

mod answer;
mod metrics;
mod models;
#[cfg(test)]
mod tests;

pub use answer::identifies_vllm;
pub use metrics::{EngineMetrics, parse_metrics};
pub use models::{Model, parse_models};
