//! Measures how unevenly 64 independent clients that start at the same time spread their calls over
//! eight replicas.
//!
//! In a *wave*, each client sends a number of calls before any of them is answered and before any
//! client has seen a replica's load. After the first wave, all clients poll the replicas once. Then
//! there is a second wave. Prompts share nothing, or everything except their ends.
//!
//! With one call per client, no policy is better than a random choice: clients that choose alone,
//! without communication, produce a multinomial distribution. From the second call on, a client
//! knows its own first call, and the policies differ.

mod peers;
mod simulate;

use self::peers::{PEERS, Peer};
use self::simulate::{CLIENTS, Prompts, REPLICAS, play};
use crate::Fallible;
use crate::report::{Op, Report};
use crate::seeds::Seeds;
use crate::virtual_time;

/// The seeds of the reported figures. The constants were chosen on seeds 1 to 1,000.
pub(crate) const SEEDS: Seeds = Seeds::new(10_000, 10_999);
/// The compared numbers of calls that each client makes in a wave.
const CALLS: [usize; 5] = [1, 2, 4, 8, 16];

/// Simulates all settings with all policies on `seeds`, and returns the report.
pub(crate) fn measure(seeds: Seeds) -> Fallible<Report> {
    let mut report = Report::new("herd", [seeds.first, seeds.last]);
    for prompts in [Prompts::Distinct, Prompts::Shared] {
        for calls in CALLS {
            for peer in PEERS {
                let runs = virtual_time::each(seeds, |seed| Ok(play(seed, calls, prompts, peer)))?;
                record_figures(&mut report, prompts, calls, peer, &runs);
            }
        }
    }
    Ok(report)
}

/// Records the figures of the policy `peer`, for one kind of prompts and one number of calls per
/// client. Each element of `runs` has the number of calls at the fullest replica after the first
/// and after the second wave.
fn record_figures(report: &mut Report, prompts: Prompts, calls: usize, peer: Peer, runs: &[[usize; 2]]) {
    let mean = (CLIENTS * calls) as f64 / REPLICAS as f64;
    let within = |wave: usize, most: f64| {
        let held = runs.iter().filter_map(|run| run.get(wave)).filter(|fullest| **fullest as f64 <= most);
        held.count() as f64 / runs.len() as f64
    };
    let worst = runs.iter().map(|run| run[0]).max().unwrap_or_default();
    let told = format!("{}, {calls} calls a client", prompts.name());
    let figures = [
        ("share of seeds within mean + 3 sqrt(mean)", within(0, mean + 3.0 * mean.sqrt())),
        ("share of seeds within the bound", within(0, bound(mean))),
        (
            "share of seeds within the bound after a poll and as many calls again",
            within(1, bound(2.0 * mean)),
        ),
        ("fullest replica of all seeds / mean", worst as f64 / mean),
    ];
    for (what, value) in figures {
        match peer {
            Peer::Ours => report.figure(format!("{told}: {what}"), value),
            other => report.peer(other.name(), format!("{told}: {what}"), value),
        }
    }
    if peer == Peer::Ours {
        let [even, first, second, _] = figures.map(|(_, value)| value);
        match prompts {
            Prompts::Distinct => {
                report.bar(
                    format!("{told}: share of seeds within mean + 3 sqrt(mean)"),
                    even,
                    Op::AtLeast,
                    0.99,
                );
            }
            Prompts::Shared => {
                report.bar(format!("{told}: share of seeds within the bound"), first, Op::AtLeast, 0.99);
                report.bar(
                    format!("{told}: the same after a poll and as many calls again"),
                    second,
                    Op::AtLeast,
                    0.99,
                );
            }
        }
    }
}

/// Returns the maximum number of calls that a replica may have to count as within the bound, if the
/// mean over the replicas is `mean`.
fn bound(mean: f64) -> f64 {
    (1.25 * mean).max(mean + 2.0 * mean.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fullest(peer: Peer, calls: usize, prompts: Prompts) -> [usize; 2] {
        play(1, calls, prompts, peer)
    }

    #[test]
    fn all_calls_are_counted_and_the_fullest_replica_has_at_least_the_mean() {
        for peer in PEERS {
            for prompts in [Prompts::Distinct, Prompts::Shared] {
                let [first, second] = fullest(peer, 2, prompts);
                assert!(
                    first >= CLIENTS * 2 / REPLICAS && second >= CLIENTS * 4 / REPLICAS,
                    "{}",
                    peer.name()
                );
                assert!(first <= CLIENTS * 2 && second <= CLIENTS * 4);
                assert_eq!([first, second], fullest(peer, 2, prompts), "the same again");
            }
        }
    }

    #[test]
    fn unbounded_prefix_affinity_causes_a_herd() {
        assert_eq!(fullest(Peer::Rendezvous, 4, Prompts::Shared)[0], 4 * CLIENTS);
        assert_eq!(fullest(Peer::PolledArgmin, 1, Prompts::Distinct)[0], CLIENTS);
        assert!(fullest(Peer::Ours, 4, Prompts::Shared)[0] < 2 * 4 * CLIENTS / REPLICAS);
    }
}
