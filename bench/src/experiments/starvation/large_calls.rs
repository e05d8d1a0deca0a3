//! Measures the waits of large calls among small calls of the same lane. Free capacity goes to
//! small calls first, until the large call has waited for the ageing time. From then on, capacity
//! is reserved for the large call.

use tidegate::Lane;
use tidegate::config::{RateConfig, TargetConfig};

use super::flood::{Account, Ahead, ArrivalPattern, Stream};
use super::{AGING, HOUR, SERVICE, flood, play, target};
use crate::Fallible;
use crate::report::{Op, Report, Spread};
use crate::seeds::Seeds;

/// The maximum input tokens of a small call. [`FLOODING`] tenants send such calls without end.
const SMALL: u64 = 1_500;
const FLOODING: u64 = 4;

/// A limited resource, and a call that needs much of it.
struct Case {
    name: &'static str,
    /// Input tokens of a large call, which has no output tokens. They are also its cost in fair
    /// queueing.
    large: u64,
    /// The lowest rate, in tokens per second, at which the target dispatches waiting calls while no
    /// capacity is reserved.
    pace: f64,
    /// Seconds from the reservation of capacity for a large call until the call fits.
    drain: f64,
    target: TargetConfig,
}

/// Returns the maximum wait of a large call, in seconds.
///
/// The wait has three parts: until the call has waited for the ageing time, until it is the first
/// of its lane, and until enough capacity is reserved. In the second part, the calls ahead of it in
/// its own tenant's queue are dispatched. By start-time fair queueing, each other tenant gets at
/// most as many tokens in that time, plus one largest call.
fn bound(case: &Case, ahead: Ahead) -> f64 {
    let others = FLOODING * (ahead.tokens + case.large + SMALL);
    let before = (others + ahead.tokens) as f64 / case.pace;
    AGING.as_secs_f64() + before + (ahead.calls + 1) as f64 * case.drain + SERVICE
}

fn cases() -> [Case; 2] {
    // 3,940 tokens per second, six seconds' worth of which may be saved. The flood alone could use
    // twice as many.
    let rates = RateConfig { tpm: Some(240_000), ..RateConfig::default() };
    let pace = 0.985 * 240_000.0 / 60.0;
    let budget = Case {
        name: "large calls, tokens a minute",
        large: 20_000,
        pace,
        drain: 20_000.0 / pace,
        target: TargetConfig { rates, ..target() },
    };
    // While a large call runs, four small ones fit beside it, of at least 500 tokens in 1.5 s. All
    // calls end within the longest service time.
    let memory = Case {
        name: "large calls, memory",
        large: 30_000,
        pace: 4.0 * 500.0 / 1.5,
        drain: SERVICE,
        // Enough slots that small calls alone fill the memory.
        target: TargetConfig { kv_tokens: Some(40_200), cap: 24, ..target() },
    };
    [budget, memory]
}

/// Simulates both cases on `seeds`, and records figures and pass criteria in `report`.
pub(super) fn measure(report: &mut Report, seeds: Seeds) -> Fallible<()> {
    for case in cases() {
        eprintln!("{}", case.name);
        let large = Stream {
            tenant: "x",
            lane: Lane::Interactive,
            service: (1.0, SERVICE),
            tokens: (case.large, case.large),
            comes: ArrivalPattern::Poisson(0.01),
        };
        let mut streams = vec![large];
        streams.extend(["a", "b", "c", "d"].map(|tenant| flood(tenant, Lane::Interactive)));
        let never = TargetConfig { aging: 2 * HOUR, ..case.target.clone() };
        let on = play(&case.target, &streams, &[], seeds)?;
        let off = play(&never, &streams, &[], seeds)?;
        let worst = |runs: &[Vec<Account>], ratio: bool| {
            let of = |account: &Account| {
                let waits = account.dispatched.iter().chain(&account.left);
                waits
                    .map(|(wait, ahead)| if ratio { wait / bound(&case, *ahead) } else { *wait })
                    .fold(0.0, f64::max)
            };
            Spread::of(runs.iter().filter_map(|run| run.first()).map(of))
        };
        let served = |runs: &[Vec<Account>]| {
            let of = |account: &Account| account.dispatched.len() as f64 / account.came as f64;
            Spread::of(runs.iter().filter_map(|run| run.first()).map(of))
        };
        let key = |what: &str| format!("{}: {what}", case.name);
        for (runs, peer) in [(&on, None), (&off, Some("aging off"))] {
            let figures = [
                ("longest wait / its bound", worst(runs, true)),
                ("longest wait, s", worst(runs, false)),
                ("served within the hour", served(runs)),
            ];
            for (what, value) in figures {
                match peer {
                    None => report.figure(key(what), value),
                    Some(peer) => report.peer(peer, key(what), value),
                }
            }
        }
        report.bar(key("longest wait / its bound"), worst(&on, true).most, Op::AtMost, 1.0);
        report.bar(key("longest wait / its bound, aging off"), worst(&off, true).least, Op::AtLeast, 1.0);
    }
    Ok(())
}
