//! What a replica of a pool shows of itself.

use std::sync::Arc;

use serde::Serialize;

use crate::placement::ReplicaView;

/// One replica, as it stands.
#[derive(Clone, Debug, Serialize)]
pub struct ReplicaSnapshot {
    /// Its base URL.
    pub url: Arc<str>,
    /// `in` the choice, `suspect` (it gets no calls until it is heard of), `down`, `trial` (one call at a time), `starting` (slow start) or `draining` (it leaves with its
    /// last call).
    pub state: &'static str,
    /// As configured.
    pub weight: f64,
    /// The share of its slots that is in force: below 1 while it starts slowly.
    pub share: f64,
    /// Calls of this gate that are there now.
    pub requests: usize,
    /// Their tokens.
    pub tokens: u64,
    /// Calls of other clients, by the last look that is not stale; `None`: not known.
    pub others: Option<f64>,
    /// The share of its memory that is taken, by itself (0 to 1); `None`: not known.
    pub kv_usage: Option<f64>,
    /// The models that it serves, adapters included; `None`: not known.
    pub models: Option<Vec<Arc<str>>>,
}

impl From<ReplicaView> for ReplicaSnapshot {
    fn from(view: ReplicaView) -> Self {
        let ReplicaView {
            id: _,
            url,
            state,
            weight,
            share,
            requests,
            tokens,
            others,
            kv_usage,
            models,
            slots: _,
        } = view;
        Self { url, state, weight, share, requests, tokens, others, kv_usage, models }
    }
}
