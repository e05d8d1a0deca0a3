//! Measures the time of an admission while 100,000 calls wait, and the memory of a waiting call.
//! Each is measured with ten tenants and with ten thousand.
//!
//! Rounds with few and with many tenants take turns, so that a disturbance affects both. A figure
//! is the median over the rounds.

mod full_target;
mod linear_scan;
mod memory;

use full_target::{Case, Load};
use linear_scan::Linear;
pub(crate) use memory::{Held, hold};

use crate::Fallible;
use crate::experiments::hot_path::std_now;
use crate::report::{Op, Report, Spread};

const WAITING: usize = 100_000;
const FEW: usize = 10;
const MANY: usize = 10_000;
const ROUNDS: usize = 201;
/// The number of operations of a round. Most rounds are so short that no other process interrupts
/// them.
const BATCH: usize = 250;
/// The number of rounds in which [`STORM`] calls are withdrawn together.
const STORMS: usize = 31;
/// The number of waiting calls that are withdrawn together, as when a process with many callers
/// exits.
const STORM: usize = 10_000;

/// A timed operation: its name, its case, the number of calls that one operation handles, and its
/// code.
type Act = (&'static str, Case, usize, fn(&mut Load));

/// Times all operations, measures memory, and returns the report.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("scale", [1]);
    let hand_on = "release + dispatch + admit";
    let cases: [Act; 6] = [
        (hand_on, Case::Slots, 1, Load::hand_on),
        ("release + dispatch + admit, most heads do not fit", Case::Overtaking, 1, Load::hand_on),
        ("release + ask, nothing fits", Case::Exhausted, 1, Load::hand_on),
        ("withdraw + admit", Case::Slots, 1, Load::leave),
        ("withdraw + admit, nothing fits", Case::Exhausted, 1, Load::leave),
        ("withdraw + admit, 10,000 at once", Case::Slots, STORM, Load::storm),
    ];
    for (what, case, each, act) in cases {
        eprintln!("{what}");
        let (mut few, mut many) = (Load::new(case, FEW)?, Load::new(case, MANY)?);
        for load in [&mut few, &mut many] {
            load.queue(WAITING)?;
        }
        let work = |load: &mut Load| {
            (0..(BATCH / each).max(1)).for_each(|_| act(load));
            each.max(BATCH)
        };
        let rounds = if each > BATCH { STORMS } else { ROUNDS };
        let times = turns(rounds, || work(&mut few), || work(&mut many));
        let expected = if case == Case::Exhausted || !what.contains("dispatch") { 0 } else { ROUNDS * BATCH };
        for load in [&few, &many] {
            if load.went != expected {
                return Err(format!("{what}: {} calls went instead of {expected}", load.went).into());
            }
        }
        let [few, many] = times;
        tell(&mut report, None, what, few, many);
        report.bar(format!("{what}, 10,000 / 10 tenants"), many.median / few.median, Op::AtMost, 2.0);
    }
    let linear = |tenants| Linear::new(tenants, WAITING);
    let (mut few, mut many) = (linear(FEW), linear(MANY));
    let [few, many] = turns(ROUNDS, || few.hand_on(BATCH), || many.hand_on(BATCH));
    tell(&mut report, Some("VTC, looking at every counter"), hand_on, few, many);
    let ratio = many.median / few.median;
    report.bar(format!("{hand_on}, looking at every counter, 10,000 / 10 tenants"), ratio, Op::AtLeast, 2.0);
    memory::measure(&mut report)?;
    Ok(report)
}

/// Runs `few` and `many` in turn, `rounds` times each. Each run returns the number of operations
/// that it made. Returns the nanoseconds per operation, first of `few` and then of `many`.
fn turns(rounds: usize, mut few: impl FnMut() -> usize, mut many: impl FnMut() -> usize) -> [Spread; 2] {
    let mut times: [Vec<f64>; 2] = Default::default();
    let mut timed = |place: usize, work: &mut dyn FnMut() -> usize| {
        let start = std_now();
        let done = work();
        let took = start.elapsed().as_secs_f64() * 1e9 / done.max(1) as f64;
        if let Some(times) = times.get_mut(place) {
            times.push(took);
        }
    };
    for _ in 0..rounds {
        timed(0, &mut few);
        timed(1, &mut many);
    }
    times.map(Spread::of)
}

fn tell(report: &mut Report, peer: Option<&str>, what: &str, few: Spread, many: Spread) {
    for (tenants, spread) in [("10", few), ("10,000", many)] {
        let key = format!("{what}, {tenants} tenants, ns");
        match peer {
            None => report.figure(key, spread),
            Some(peer) => report.peer(peer, key, spread),
        }
    }
}
