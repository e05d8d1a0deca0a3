//! The state of one replica of a pool, as a snapshot shows it.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::{KvSnapshot, LimitSnapshot};
use crate::placement::ReplicaView;

/// The current state of one replica of a pool.
#[derive(Clone, Debug, Serialize)]
pub struct ReplicaSnapshot {
    /// Base URL of the replica.
    pub url: Arc<str>,
    /// State of the replica:
    ///
    /// - `in`: calls are sent to it.
    /// - `suspect`: it gets no calls until it responds.
    /// - `down`: it failed and gets no calls.
    /// - `trial`: it gets one call at a time, as a test.
    /// - `starting`: it is in slow start, with a share of its slots.
    /// - `draining`: it was removed from the pool, and leaves when its last call ends.
    pub state: &'static str,
    /// Configured weight.
    pub weight: f64,
    /// Share of its slots in force, from 0 to 1. Below 1 during slow start.
    pub share: f64,
    /// How often it was ejected: taken out of the selection because it failed.
    pub ejections: u64,
    /// Limit in force, in slots.
    pub limit: usize,
    /// The adaptive limit of the replica. `None` if the limit is fixed.
    pub adaptive: Option<LimitSnapshot>,
    /// Slots in use.
    pub in_flight: usize,
    /// KV memory of its engine, if the size is known.
    pub kv: Option<KvSnapshot>,
    /// Requests of this gate at the replica, including those without a slot.
    pub requests: usize,
    /// Tokens of those requests.
    pub tokens: u64,
    /// Requests of other clients at the replica, from the latest poll. `None` if no poll is recent
    /// enough.
    pub others: Option<f64>,
    /// Share of its KV memory in use, from 0 to 1, as the replica reports it. `None` if unknown.
    pub kv_usage: Option<f64>,
    /// Names of the models that it serves, adapters included. `None` if unknown.
    pub models: Option<Vec<Arc<str>>>,
}

impl ReplicaSnapshot {
    /// Converts the view of a replica.
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
