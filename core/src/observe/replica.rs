//! What a replica of a pool shows of itself.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::{KvSnapshot, LimitSnapshot};
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
    /// How often it has left the choice.
    pub ejections: u64,
    /// Slots in force there.
    pub limit: usize,
    /// How their number is found; `None`: it is fixed.
    pub adaptive: Option<LimitSnapshot>,
    /// Slots held there.
    pub in_flight: usize,
    /// Its memory, where its size is known.
    pub kv: Option<KvSnapshot>,
    /// Calls of this gate that are there now, those that hold no slot included.
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

impl ReplicaSnapshot {
    pub(crate) fn of(view: ReplicaView, now: Instant) -> Self {
        let ReplicaView {
            id: _,
            url,
            state,
            is_eligible: _,
            weight,
            share,
            ejections,
            requests,
            tokens,
            others,
            kv_usage,
            models,
            slots,
        } = view;
        let adaptive = slots.as_ref().and_then(|slots| slots.adaptive.as_ref());
        Self {
            url,
            state,
            weight,
            share,
            ejections,
            limit: slots.as_ref().map_or(0, |slots| slots.limit),
            adaptive: adaptive.map(|seen| LimitSnapshot::of(seen, now)),
            in_flight: slots.as_ref().map_or(0, |slots| slots.in_flight),
            kv: slots.as_ref().and_then(|slots| slots.kv.as_ref()).map(KvSnapshot::from),
            requests,
            tokens,
            others,
            kv_usage,
            models,
        }
    }
}
