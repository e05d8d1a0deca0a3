//! The traffic of the blog post's three tenants without caps: runs 1 and 2.

use std::collections::HashMap;
use std::time::Duration;

use fastrand::Rng;

use super::{Arrivals, CallSummary, CallTiming, summarise};
use crate::config::SimConfig;
use crate::engine::{EventKind, SequenceId};
use crate::pool::EnginePool;

/// One of the blog post's two runs without caps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// Run 1: tenants A and C alone for 60 s.
    Baseline,
    /// Run 2: tenants A and C for 120 s, with a burst of calls from tenant B.
    CapsOff,
}

/// The traffic of one tenant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TenantTraffic {
    /// Name of the tenant in the blog post: `A`, `B` or `C`.
    pub name: &'static str,
    /// Mean number of calls per second.
    pub per_second: f64,
    /// Total number of calls.
    pub calls: usize,
    /// Time from the start of the run at which the tenant begins to send calls.
    pub start: Duration,
}

/// Tokens in each prompt of the blog post.
pub const PROMPT_TOKENS: u32 = 512;
/// Tokens in each answer of the blog post.
pub const OUTPUT_TOKENS: u32 = 128;

impl Run {
    /// Returns the traffic of each tenant, in order of their names.
    ///
    /// The blog post says that tenant B sends 30 calls per second for about 30 s, but counts 450
    /// calls. Here B sends 30 per second for 15 s, from 30 s on.
    pub fn tenants(self) -> Vec<TenantTraffic> {
        let tenant = |name, per_second, calls, start| TenantTraffic {
            name,
            per_second,
            calls,
            start: Duration::from_secs(start),
        };
        match self {
            Self::Baseline => vec![tenant("A", 2.0, 120, 0), tenant("C", 1.0, 60, 0)],
            Self::CapsOff => {
                vec![tenant("A", 2.0, 240, 0), tenant("B", 30.0, 450, 30), tenant("C", 1.0, 120, 0)]
            }
        }
    }

    /// Returns all calls of the run in order of time: for each, the index of its tenant in
    /// [`Run::tenants`] and the time at which it is sent. The calls of [`Run::CapsOff`] are also
    /// those of the blog post's run 3.
    pub fn calls(self, arrivals: Arrivals, seed: u64) -> Vec<(usize, Duration)> {
        let mut rng = Rng::with_seed(seed);
        let mut calls: Vec<(usize, Duration)> = Vec::new();
        for (index, tenant) in self.tenants().iter().enumerate() {
            let times = arrivals.draw(&mut rng, tenant.start, tenant.per_second, tenant.calls);
            calls.extend(times.into_iter().map(|at| (index, at)));
        }
        calls.sort_by_key(|&(index, at)| (at, index));
        calls
    }
}

/// The figures of one run: those of each tenant, and those of the engines.
#[derive(Debug, Clone, PartialEq)]
pub struct RunReport {
    /// Name and figures of each tenant, in the order of [`Run::tenants`].
    pub tenants: Vec<(&'static str, CallSummary)>,
    /// Number of preemptions over all engines.
    pub preemptions: u64,
    /// Maximum share of an engine's KV cache that was in use, from 0 to 1.
    pub peak_kv: f64,
}

/// Plays one run of the model in virtual time, without an async runtime. The same arguments give
/// the same figures.
pub fn noisy_neighbour(config: &SimConfig, run: Run, arrivals: Arrivals, seed: u64) -> RunReport {
    let tenants = run.tenants();
    let calls = run.calls(arrivals, seed);
    let mut pool = EnginePool::new(config.workers, &config.engine, config.routing);
    let mut records: Vec<Vec<CallTiming>> = vec![Vec::new(); tenants.len()];
    let mut record_of: HashMap<SequenceId, (usize, usize)> = HashMap::new();
    let mut events = Vec::new();
    for (number, &(tenant, sent)) in calls.iter().enumerate() {
        pool.advance(sent, &mut events);
        apply_events(&mut events, &record_of, &mut records);
        let id = SequenceId(number as u64);
        let Some(rows) = records.get_mut(tenant) else { continue };
        record_of.insert(id, (tenant, rows.len()));
        rows.push(CallTiming { sent, tokens: OUTPUT_TOKENS, ..CallTiming::default() });
        // A call that is too large for the cache never finishes, and so counts as a failure.
        if pool.submit(sent, id, PROMPT_TOKENS, OUTPUT_TOKENS).is_err() {
            record_of.remove(&id);
        }
    }
    while let Some(at) = pool.next_event() {
        pool.advance(at, &mut events);
        apply_events(&mut events, &record_of, &mut records);
    }
    RunReport {
        tenants: tenants.iter().map(|t| t.name).zip(records.iter().map(|r| summarise(r))).collect(),
        preemptions: pool.preemptions(),
        peak_kv: pool.peak_kv(),
    }
}

fn apply_events(
    events: &mut Vec<crate::engine::EngineEvent>,
    record_of: &HashMap<SequenceId, (usize, usize)>,
    records: &mut [Vec<CallTiming>],
) {
    for event in events.drain(..) {
        let call = record_of.get(&event.id).and_then(|&(tenant, row)| records.get_mut(tenant)?.get_mut(row));
        let Some(call) = call else { continue };
        match event.kind {
            EventKind::Token { index: 0 } => call.first_token = Some(event.at),
            EventKind::Finished => call.finished = Some(event.at),
            _ => {}
        }
    }
}
