//! The controllers that Tidegate's adaptive limit is compared with: published crates with their
//! defaults, and two controllers after published descriptions ([`median_aimd`],
//! [`published_aimd`]).
//!
//! The crates were made for calls that do not stream. For a stream, their tower layers measure the
//! time to the response head, or the duration of the whole stream, and one of them releases the
//! slot with the head. Here the algorithms run without these layers, which favours them:
//!
//! - A stream is reported once, at its first token, with the upstream's TTFT and the number in
//!   flight at that moment. A call that does not stream is reported at its end, with its duration.
//! - A slot is held to the end of the stream.
//! - A 429, a 503 or a timeout before the first token is an error. Later events are not reported.
//! - A caller who leaves is reported as the crate's interface provides.
//!
//! The algorithms of two of the crates can be called without their layers. The third crate hides
//! the constructor of its samples and reads tokio's clock ([`congestion_limiter`]).

mod congestion_limiter;
mod median_aimd;
pub(crate) mod published_aimd;
mod report_once;
mod tower_acc;
mod tower_resilience;

use std::time::Instant;

use super::contender::{Contender, Ours, Terms};

/// Creates a controller for a run that starts at the given instant.
pub(crate) type Begin = fn(&Terms, Instant) -> Box<dyn Contender>;

/// All peers: the name in tables, and the constructor.
pub(crate) const ALL: [(&str, Begin); 15] = [
    ("AIMD on p99, floor 16", |terms, now| boxed(percentile(terms, 16, now))),
    ("AIMD on p99", |terms, now| boxed(percentile(terms, 1, now))),
    ("AIMD on p99 of user TTFT, floor 16", |terms, now| boxed(published_aimd::AsPosted::new(terms, now))),
    ("AIMD on p50 over twice the baseline", |terms, _| boxed(median_aimd::Median::new(terms))),
    ("tower-acc Vegas", |_, _| boxed(tower_acc::vegas())),
    ("tower-acc Gradient2", |_, _| boxed(tower_acc::gradient2())),
    ("tower-resilience AIMD", |_, _| boxed(tower_resilience::aimd())),
    ("tower-resilience AIMD (objective)", |terms, _| boxed(tower_resilience::aimd_with(terms.upstream()))),
    ("tower-resilience Vegas", |_, _| boxed(tower_resilience::vegas())),
    ("tower-resilience Gradient2", |_, _| boxed(tower_resilience::gradient2())),
    ("congestion-limiter AIMD", |_, now| boxed(congestion_limiter::aimd(now))),
    ("congestion-limiter AIMD (objective)", |terms, now| {
        boxed(congestion_limiter::aimd_with(terms.upstream(), now))
    }),
    ("congestion-limiter Vegas", |_, now| boxed(congestion_limiter::vegas(now))),
    ("congestion-limiter Vegas, windowed", |_, now| boxed(congestion_limiter::vegas_windowed(now))),
    ("congestion-limiter Vegas, windowed p90", |_, now| boxed(congestion_limiter::vegas_percentile(now))),
];

fn boxed(contender: impl Contender + 'static) -> Box<dyn Contender> {
    Box::new(contender)
}

/// Returns Tidegate's limit in percentile mode, which follows the rule of the published AIMD
/// controller but uses the upstream's TTFT. Each decrease halves the limit, but never below `floor`
/// calls.
fn percentile(terms: &Terms, floor: usize, now: Instant) -> Ours {
    let settings = published_aimd::Post {
        workers: 1,
        cap_per_worker: published_aimd::Post::FINAL.cap_per_worker.min(terms.ceiling),
        min: floor.min(terms.ceiling),
        descent: published_aimd::Descent::Halving,
        ..published_aimd::Post::FINAL
    };
    Ours::new(terms, settings.in_core(), now)
}
