//! Short runs from different initial caps (maximum numbers of calls in flight per worker). They
//! show the U-shaped curve of TTFT over the caps, and compare initial caps of 64 and 128.
//!
//! The post does not state the lengths of its calls. With the 512 prompt and 128 output tokens of
//! the previous post, the memory of a worker is full at 140 concurrent calls. With twice the tokens
//! it is full at 70. TTFT rises sharply at a cap above that, and the post saw this rise between 64
//! and 128. Therefore these runs use twice the tokens.

use super::controllers::{Controller, Ours};
use super::gateway::QueueLimits;
use super::load::Load;
use super::{BREACH, Figure, IN_TIME, MEDIAN, Make, P99, Runs, SERVED, WORKERS, fixed, note, post, s};
use crate::Fallible;
use crate::experiments::adaptive::peers::published_aimd::{Descent, Post};
use crate::report::{Op, Report};

const CAPS: [usize; 7] = [4, 8, 16, 32, 64, 128, 256];
const FIGURES: [Figure; 4] = [MEDIAN, P99, SERVED, IN_TIME];

/// Simulates each controller from seven initial caps, and records figures and pass criteria in
/// `report`.
pub(super) fn measure(report: &mut Report) -> Fallible<()> {
    let load = Load { tokens: (1_024, 256), ..Load::steady(s(120), [2.0, 4.0]) };
    let sweep = |queue_limits, make: &dyn Fn(usize) -> Box<Make>| {
        let see = |cap| Runs::of(&load, queue_limits, &make(cap), s(0)..load.length);
        CAPS.into_iter().map(see).collect::<Fallible<Vec<Runs>>>()
    };
    // "A wider sweep" needs wider bounds.
    let last = Post { min: 4, max: 256, ..Post::FINAL };
    let halving = Post { descent: Descent::Halving, ..last };
    let held = sweep(QueueLimits::TIGHT, &|cap| fixed(cap))?;
    let posts = sweep(QueueLimits::TIGHT, &|cap| post(Post { cap_per_worker: cap, ..last }))?;
    let impatient = sweep(QueueLimits::IMPATIENT, &|cap| post(Post { cap_per_worker: cap, ..halving }))?;
    let waiting = sweep(QueueLimits::IMPATIENT, &|cap| fixed(cap))?;
    let begun = |cap| Box::new(move || Box::new(Ours::starting_at(cap * WORKERS)) as Box<dyn Controller>);
    let patient = sweep(QueueLimits::TIGHT, &|cap| begun(cap))?;
    let own = sweep(QueueLimits::IMPATIENT, &|cap| begun(cap))?;
    for (place, cap) in CAPS.into_iter().enumerate() {
        let fault = format!("first cap {cap}");
        for (fault, who, runs) in [
            (fault.clone(), "fixed there", &held),
            (fault.clone(), "fixed there, with 1 s to acquire", &waiting),
            (fault.clone(), "the post's final law", &posts),
            (fault.clone(), "halving, with 1 s to acquire", &impatient),
            (format!("{fault}, the post's queues"), "", &patient),
            (fault, "", &own),
        ] {
            if let Some(runs) = runs.get(place) {
                note(report, &fault, who, runs, &FIGURES);
            }
        }
    }

    let in_time =
        |sweep: &[Runs]| sweep.iter().map(|runs| runs.spread(IN_TIME.1).median).collect::<Vec<f64>>();
    let p99s = |sweep: &[Runs]| sweep.iter().map(|runs| runs.spread(P99.1).median).collect::<Vec<f64>>();
    let theirs = p99s(&posts);
    let least = theirs.iter().copied().fold(f64::INFINITY, f64::min);
    let side = |end: Option<&f64>| end.copied().unwrap_or_default() / least;
    report.bar("the U shows: p99 from 4, of that from the best", side(theirs.first()), Op::AtLeast, 2.0);
    report.bar("the U shows: p99 from 256, of that from the best", side(theirs.last()), Op::AtLeast, 2.0);
    // Fixed caps miss the bars that ours meets behind the same queues: calls wait less there, so
    // the left side of the U shows in the served calls.
    let theirs = p99s(&waiting);
    let least = theirs.iter().copied().fold(f64::INFINITY, f64::min);
    let right = theirs.last().copied().unwrap_or_default() / least;
    report.bar("fixed caps, 1 s to acquire: p99 at 256, of that at the best", right, Op::AtLeast, 2.0);
    let theirs = in_time(&waiting);
    let most = theirs.iter().copied().fold(0.0, f64::max);
    let left = theirs.first().copied().unwrap_or(f64::NAN) / most;
    let slowest = in_time(&own).into_iter().fold(f64::INFINITY, f64::min);
    report.figure(
        "worst first cap, within 2 s, of the best fixed cap behind the same door (medians)",
        slowest / most,
    );
    report.bar("fixed caps, 1 s to acquire: within 2 s at 4, of that at the best", left, Op::AtMost, 0.5);
    let worst = own.iter().map(|runs| runs.spread(P99.1).most).fold(0.0, f64::max);
    report.bar("ours, wherever it begins: p99 user TTFT, s", worst, Op::AtMost, BREACH);
    let ours = p99s(&own);
    let most = ours.iter().copied().fold(0.0, f64::max) / ours.iter().copied().fold(f64::INFINITY, f64::min);
    report.bar("ours, no U: worst p99, of the best (medians)", most, Op::AtMost, 1.5);
    let best = [&held, &posts, &impatient].into_iter().flat_map(|sweep| in_time(sweep)).fold(0.0, f64::max);
    report.bar(
        "ours, wherever it begins: within 2 s, of the best beginning of the others (medians)",
        slowest / best,
        Op::AtLeast,
        0.98,
    );

    // The fifth and the sixth caps, 64 and 128.
    if let [.., at_64, at_128, _] = posts.as_slice() {
        let ratio = at_128.least_ratio(at_64, P99.1);
        report.bar("64 against 128: p99 of the second, of the first", ratio, Op::AtLeast, 2.0);
        let ratio = at_128.least_ratio(at_64, SERVED.1);
        report.bar("64 against 128: served by the second, of the first", ratio, Op::AtLeast, 0.8);
        let ratio = at_128.most_ratio(at_64, SERVED.1);
        report.bar("64 against 128: served by the second, of the first, at most", ratio, Op::AtMost, 1.1);
    }
    if let [.., at_64, at_128, _] = waiting.as_slice() {
        let ratio = at_128.least_ratio(at_64, P99.1);
        report.bar(
            "fixed at 64 and at 128, 1 s to acquire: p99 of the second, of the first",
            ratio,
            Op::AtLeast,
            2.0,
        );
    }
    if let [.., at_64, at_128, _] = own.as_slice() {
        let ratio = at_128.most_ratio(at_64, P99.1);
        report.bar("ours, begun at 64 and at 128: p99 of the second, of the first", ratio, Op::AtMost, 1.5);
    }
    Ok(())
}
