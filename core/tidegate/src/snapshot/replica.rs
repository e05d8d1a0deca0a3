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
    /// - `trial`: it gets one call at a time, as a test, or one every 5 s.
    /// - `starting`: it is in slow start, with a share of its slots.
    /// - `draining`: it was removed from the pool, and leaves when its last call ends.
    pub state: &'static str,
    /// Configured weight. The replicas of a pool get calls in proportion to their weights.
    pub weight: f64,
    /// Part of its weight and slots that the replica may use now, from 0 to 1. Below 1 only during
    /// slow start and trials.
    pub share: f64,
    /// Number of times that the replica was taken out of use because it had failed, since it joined
    /// the pool.
    pub ejections: u64,
    /// Current limit, in slots. 0 if the slots of single replicas are not tracked.
    pub limit: usize,
    /// The state of its adaptive limit. `None` if the limit is fixed.
    pub adaptive: Option<LimitSnapshot>,
    /// Slots of the replica in use now.
    pub in_flight: usize,
    /// The KV-cache memory of its inference engine. `None` if its size is unknown.
    pub kv: Option<KvSnapshot>,
    /// Number of requests of this gate at the replica, including those that need no slot.
    pub requests: usize,
    /// Estimated number of tokens of the requests that `requests` counts: prompt tokens plus
    /// expected output tokens.
    pub tokens: u64,
    /// Number of requests of other clients at the replica: those at the latest poll of its metrics,
    /// and the current ones of processes that share the pool. `None` if there was no recent poll
    /// and none of the latter.
    pub others: Option<f64>,
    /// Share of the KV-cache memory in use, from 0 to 1, as the replica reports it. `None` if
    /// unknown.
    pub kv_usage: Option<f64>,
    /// Names of the models that the replica serves, including adapters. `None` if unknown.
    pub models: Option<Vec<Arc<str>>>,
    /// HTTP status of the latest answer to `GET /v1/models`, if it was no list of models. 401 means
    /// that the replica needs a key (`pool.key_env`). `None` if the latest answer was a list, or if
    /// there was no answer.
    pub models_status: Option<u16>,
    /// Why the replica gets no calls now, in words: its latest kind of failure. `None` if it gets
    /// calls.
    pub problem: Option<&'static str>,
}

impl ReplicaSnapshot {
    pub(crate) fn from_view(view: ReplicaView, now: Instant) -> Self {
        let slots = view.slots.as_ref();
        let adaptive = slots.and_then(|slots| slots.adaptive.as_ref());
        Self {
            limit: slots.map_or(0, |slots| slots.limit),
            adaptive: adaptive.map(|adaptive| LimitSnapshot::from_view(adaptive, now)),
            in_flight: slots.map_or(0, |slots| slots.in_flight),
            kv: slots.and_then(|slots| slots.kv.as_ref()).map(KvSnapshot::from),
            url: view.url,
            state: view.state.as_str(),
            weight: view.weight,
            share: view.share,
            ejections: view.ejections,
            requests: view.requests,
            tokens: view.tokens,
            others: view.others,
            kv_usage: view.kv_usage,
            models: view.models,
            models_status: view.models_status,
            problem: view.problem,
        }
    }
}
