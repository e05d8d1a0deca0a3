//! Measures the used share of a quota of tokens per minute, and the number of 429s, through the
//! client in virtual time.
//!
//! Lengths are from Azure's traces. Texts, tenants and `max_tokens` are generated (see [`load`]).
//! The simulated provider ([`crate::quota_provider`]) counts what it has accepted and rejected.

mod gateway;
mod load;
mod local_bucket;
mod wrong_quota;

use std::sync::Arc;
use std::time::Duration;

use gateway::Forgetful;
use load::{Load, WORKERS};
use local_bucket::Local;
use serde_json::json;
use tidegate::config::{Config, Counting, Target};
use tidegate::{Gate, Transport};
use tokio::time::Instant;

use crate::Fallible;
use crate::client_call::URL;
use crate::quota_provider::{Counts, Meter, Provider, Terms, Totals};
use crate::report::{Op, Report, Spread};
use crate::retrying_clients::Rule;
use crate::seeds::Seeds;
use crate::virtual_time;

/// The seeds of the reported figures. The constants were chosen on seeds 1 to 10.
pub(crate) const SEEDS: Seeds = Seeds::new(11, 15);
/// The number of seeds on which peers are measured. They are fewer, because most of the peers'
/// calls are rejected, which takes long.
const PEER_SEEDS: u64 = 2;
/// The quota, in tokens per minute.
const TPM: u64 = 400_000;
/// The time before the measurement, in which the gate learns to estimate the tokens of a call.
const WARM: Duration = Duration::from_secs(180);
const MEASURED: Duration = Duration::from_secs(600);

#[derive(Clone, Copy)]
struct Scene {
    name: &'static str,
    terms: Terms,
    /// Whether the quota is configured. If `false`, the gate learns it from the response headers.
    configured: bool,
    /// Whether the provider's way of counting tokens is configured, although the gate could learn
    /// it from headers. Without headers, it is always configured.
    counting_configured: bool,
}

/// A provider that charges input and `max_tokens` to a bucket, reports its limits in headers, and
/// has no other users.
const TERMS: Terms = Terms {
    tpm: TPM as f64,
    counts: Counts::Sum,
    meter: Meter::Bucket(60),
    headers: true,
    others: 0.0,
    announced: None,
};

fn scenes() -> Vec<Scene> {
    let terms = TERMS;
    let scene = |name, terms, configured| Scene { name, terms, configured, counting_configured: false };
    let counting_configured =
        |name, terms| Scene { name, terms, configured: true, counting_configured: true };
    let actual = Terms { counts: Counts::Actual, ..terms };
    vec![
        scene("input + max_tokens", terms, true),
        scene("the larger of input and max_tokens", Terms { counts: Counts::Larger, ..terms }, true),
        scene("what is used", actual, true),
        scene("input + max_tokens, nothing configured", terms, false),
        scene("what is used, nothing configured", actual, false),
        scene("input + max_tokens, no headers", Terms { headers: false, ..terms }, true),
        scene("what is used, no headers", Terms { headers: false, ..actual }, true),
        scene("what is used, others take 30 %", Terms { others: 0.3 * TPM as f64, ..actual }, true),
        scene("what is used, ten seconds' depth", Terms { meter: Meter::Bucket(10), ..actual }, true),
        scene("what is used, fixed minutes", Terms { meter: Meter::Fixed, ..actual }, true),
        scene("what is used, any sixty seconds", Terms { meter: Meter::Sliding, ..actual }, true),
        counting_configured(
            "what is used and so configured, ten seconds' depth",
            Terms { meter: Meter::Bucket(10), ..actual },
        ),
        counting_configured(
            "what is used and so configured, fixed minutes",
            Terms { meter: Meter::Fixed, ..actual },
        ),
        counting_configured(
            "what is used and so configured, any sixty seconds",
            Terms { meter: Meter::Sliding, ..actual },
        ),
    ]
}

/// A compared client, which decides when a call is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Contestant {
    Tidegate,
    /// A bucket that charges exact input tokens and all of `max_tokens`, with the retries of
    /// openai's client.
    Exact,
    /// A bucket that charges a quarter of the characters and all of `max_tokens`, with the retries
    /// of openai's client.
    Quarter,
    /// openai's client without a limiter: calls are sent immediately, and retried after a 429.
    Nobody,
    /// A bucket that refills at a share of the announced limit. The share is decreased by 429s, and
    /// reset when another limit is announced.
    Forgetful,
}

const PEERS: [(Contestant, &str); 3] = [
    (Contestant::Exact, "exact tokens + max_tokens"),
    (Contestant::Quarter, "chars/4 + max_tokens"),
    (Contestant::Nobody, "openai's rule alone"),
];

/// Simulates all scenes on `seeds`, and returns the report.
pub(crate) fn measure(seeds: Seeds) -> Fallible<Report> {
    let mut report = Report::new("tokens", seeds);
    for trace in ["conv", "code"] {
        let loads = virtual_time::each(seeds, |seed| Ok(Arc::new(Load::new(trace, seed)?)))?;
        for scene in scenes() {
            let name = format!("{trace}, {}", scene.name);
            eprintln!("{name}");
            let run = |who, seeds: Seeds| {
                virtual_time::each(seeds, |seed| {
                    let load = loads.iter().find(|load| load.seed == seed).ok_or("no load of that seed")?;
                    play(scene, who, load.clone(), seed)
                })
            };
            let ours = run(Contestant::Tidegate, seeds)?;
            let (used, refused) = figures(&scene.terms, &ours);
            report.figure(format!("{name}: share of the quota used"), used);
            report.figure(format!("{name}: 429s a thousand calls"), refused);
            report.bar(format!("{name}: share of the quota used"), used.least, Op::AtLeast, 0.95);
            report.bar_as(format!("{name}: 429s"), json!(refused.most), "=", json!(0), refused.most == 0.0);
            for (peer, who) in PEERS {
                let (used, refused) = figures(&scene.terms, &run(peer, seeds.take(PEER_SEEDS))?);
                report.peer(who, format!("{name}: share of the quota used"), used);
                report.peer(who, format!("{name}: 429s a thousand calls"), refused);
            }
        }
    }
    gateway::measure(&mut report, seeds)?;
    wrong_quota::measure(&mut report, seeds)?;
    Ok(report)
}

fn figures(terms: &Terms, runs: &[Totals]) -> (Spread, Spread) {
    let quota = (terms.tpm - terms.others) * MEASURED.as_secs_f64() / 60.0;
    let used = Spread::of(runs.iter().map(|totals| totals.counted / quota));
    let refused =
        Spread::of(runs.iter().map(|totals| totals.refused as f64 / totals.accepted.max(1) as f64 * 1e3));
    (used, refused)
}

fn play(scene: Scene, who: Contestant, load: Arc<Load>, seed: u64) -> Fallible<Totals> {
    virtual_time::run(seed, async move {
        let provider = Provider::new(scene.terms);
        let through = match who {
            Contestant::Tidegate => {
                let counting = match scene.terms.counts {
                    Counts::Sum => Counting::Sum,
                    Counts::Larger => Counting::Larger,
                    Counts::Actual => Counting::Actual,
                };
                let target = Target::new("provider").url(URL).cap(256);
                let configured = if scene.configured { target.tpm(TPM) } else { target };
                let configured = if scene.terms.headers && !scene.counting_configured {
                    configured
                } else {
                    configured.counting(counting)
                };
                let config = Config::builder().target(configured).build()?;
                Transport::new(Gate::over(config, provider.transport())?.client())
            }
            Contestant::Exact => Local::over(provider.transport(), TPM as f64, local_bucket::exact),
            Contestant::Quarter => Local::over(provider.transport(), TPM as f64, local_bucket::quarter),
            Contestant::Forgetful => Forgetful::over(provider.transport()),
            Contestant::Nobody => Rule::openai(Duration::from_secs(600)).over(provider.transport()),
        };
        let begin = Instant::now();
        let until = begin + WARM + MEASURED;
        let mut workers = tokio::task::JoinSet::new();
        let next = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        for _ in 0..WORKERS {
            workers.spawn(load.clone().work(through.clone(), next.clone(), until));
        }
        tokio::time::sleep_until(begin + WARM).await;
        provider.begin();
        tokio::time::sleep_until(until).await;
        let totals = provider.totals();
        workers.shutdown().await;
        Ok(totals)
    })
}
