//! Draws the arrivals of a run: normal traffic, ten minutes at three times the normal call rate,
//! and normal traffic again.

use std::time::Duration;

use fastrand::Rng;
use tidegate::Lane;
use tidegate::config::Tenant;

use crate::trace_lengths::{Traces, Work, log_normal};

/// A call: its arrival time since the start of the run, its tenant, its lane, and its lengths.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) at: Duration,
    pub(super) tenant: String,
    pub(super) lane: Lane,
    pub(super) work: Work,
}

/// Start and end of the burst, since the start of the run.
pub(super) const BURST: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(720));
/// The end of the arrivals, since the start of the run.
const LAST: Duration = Duration::from_secs(840);
/// The traffic in the burst, as a multiple of the normal traffic.
const TIMES: f64 = 3.0;

/// Calls per second in normal times, by lane. Interactive calls are chats and checkout widgets,
/// standard calls are retrieval with long contexts, and batch calls are nightly reports.
const RATES: [(Lane, f64); 3] = [(Lane::Interactive, 2.0), (Lane::Standard, 0.5), (Lane::Batch, 0.2)];

/// The tenants of the published guide, by plan: the prefix of the names, the number of tenants,
/// their share of all calls from 0 to 1, and the slots and the weight of each tenant.
const TENANTS: [(&str, usize, f64, usize, f64); 3] =
    [("enterprise", 8, 0.5, 12, 4.0), ("pro", 24, 0.35, 4, 2.0), ("free", 80, 0.15, 1, 1.0)];

/// Returns the name of each tenant, with its configured slots and weight.
pub(super) fn tenants() -> impl Iterator<Item = (String, Tenant)> {
    TENANTS.into_iter().flat_map(|(plan, count, _, cap, weight)| {
        (0..count).map(move |k| (format!("{plan}-{k}"), Tenant::new().cap(cap).weight(weight)))
    })
}

/// Draws the calls of a run with Poisson arrivals, in order of time.
pub(super) fn draw(traces: &Traces, seed: u64) -> Vec<Arrival> {
    let mut rng = Rng::with_seed(seed);
    let mut conversations: Vec<Work> = traces.conversations(&mut rng).take(CONVERSATIONS).collect();
    let mut arrivals = Vec::new();
    for (lane, rate) in RATES {
        let mut at = 0.0;
        loop {
            // Candidates are drawn at the rate of the burst. In normal times a third of them is
            // kept.
            at -= (1.0 - rng.f64()).ln() / (rate * TIMES);
            let when = Duration::from_secs_f64(at);
            if when >= LAST {
                break;
            }
            let busy = (BURST.0..BURST.1).contains(&when);
            if !busy && rng.f64() >= 1.0 / TIMES {
                continue;
            }
            let work = match lane {
                Lane::Interactive => conversations.pop().unwrap_or(Work { prompt: 1_000, output: 200 }),
                // About one in thirty prompts is longer than the operator's maximum.
                Lane::Standard => Work {
                    prompt: log_normal(&mut rng, 6_500.0, 0.5, (1_000.0, 24_000.0)),
                    output: log_normal(&mut rng, 200.0, 0.6, (16.0, 1_000.0)),
                },
                Lane::Batch => Work {
                    prompt: log_normal(&mut rng, 3_000.0, 0.5, (500.0, 12_000.0)),
                    output: log_normal(&mut rng, 500.0, 0.6, (50.0, 2_000.0)),
                },
            };
            arrivals.push(Arrival { at: when, tenant: tenant(&mut rng), lane, work });
        }
    }
    arrivals.sort_by_key(|arrival| arrival.at);
    arrivals
}

/// The number of conversations that are drawn. No run needs more.
const CONVERSATIONS: usize = 8_000;

fn tenant(rng: &mut Rng) -> String {
    let mut place = rng.f64();
    for (plan, count, share, ..) in TENANTS {
        if place < share {
            return format!("{plan}-{}", rng.usize(..count));
        }
        place -= share;
    }
    "free-0".to_owned()
}
