//! The experiments, one module each. `bench/README.md` describes them.

pub(crate) mod adaptive;
pub(crate) mod adaptive_gate;
pub(crate) mod aimd_history;
pub(crate) mod burst;
pub(crate) mod cancel;
pub(crate) mod cap;
pub(crate) mod cooldown;
pub(crate) mod failover;
pub(crate) mod fairness;
pub(crate) mod herd;
pub(crate) mod hot_path;
pub(crate) mod kv;
pub(crate) mod memory;
pub(crate) mod noisy_neighbour;
pub(crate) mod outage;
pub(crate) mod pool;
pub(crate) mod scale;
pub(crate) mod share;
pub(crate) mod starvation;
pub(crate) mod sweep;
pub(crate) mod tenant_bursts;
pub(crate) mod tokens;
pub(crate) mod vllm;
pub(crate) mod work_conserving;
