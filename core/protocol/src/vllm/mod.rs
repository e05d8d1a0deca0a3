//! What a self-hosted engine says of itself: vLLM's `/metrics` and `/v1/models`, and SGLang's where they say the same. Pure.
//!
//! Tolerant: what is not understood is left out, and no bytes make it fail otherwise. What several engines behind one address say is put together.

mod metrics;
mod models;
#[cfg(test)]
mod tests;

pub use metrics::{EngineMetrics, standing};
pub use models::{Model, models};
