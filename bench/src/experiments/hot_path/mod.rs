//! Measures the time of one admission: without contention, with two threads, and with calls
//! waiting. Peers are timed in the same run.
//!
//! The timed operations take turns round by round, so that a disturbance affects all of them. A
//! figure is the median over the rounds.

mod queueing_costs;
mod timed_operations;

use std::hint::black_box;
use std::sync::Barrier;

use timed_operations::{Contender, contenders};

use crate::Fallible;
use crate::report::{Op, Report, Spread};

const ROUNDS: usize = 41;
const BATCH: usize = 100_000;

/// Times all operations, and returns the report.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("hot-path", [1]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let _entered = runtime.enter();
    let all = contenders()?;
    eprintln!("one thread");
    let one = rounds(&all, 1);
    eprintln!("two threads");
    let two = rounds(&all, 2);
    let median = |of: &[Vec<f64>], name: &str| {
        let at = all.iter().position(|c| c.name == name);
        at.and_then(|at| of.get(at)).map_or(f64::NAN, |ns| Spread::of(ns.iter().copied()).median)
    };
    for (place, contender) in all.iter().enumerate() {
        for (threads, ns) in [("1 thread", &one), ("2 threads", &two)] {
            let Some(ns) = ns.get(place) else { continue };
            let spread = Spread::of(ns.iter().copied());
            let key = |name: &str| format!("{name}, {threads}, ns");
            if contender.ours {
                report.figure(key(contender.name), spread);
            } else {
                report.peer(contender.name, key(timed_operations::ADMIT_JUDGED), spread);
            }
        }
    }
    for name in [timed_operations::ADMIT, timed_operations::ADMIT_JUDGED, timed_operations::ADAPTIVE] {
        let bare = median(&one, timed_operations::BARE);
        report.bar(
            format!("{name} / {}", timed_operations::BARE),
            median(&one, name) / bare,
            Op::AtMost,
            3.0,
        );
    }
    let (whole, off) = (median(&one, timed_operations::WHOLE), median(&one, timed_operations::WHOLE_OFF));
    report.bar("whole call, enforce / off, over an instant transport", whole / off, Op::AtMost, 2.5);
    for name in [timed_operations::SEMAPHORE, timed_operations::TOWER] {
        report.figure(
            format!("{} / {name}", timed_operations::ADMIT_JUDGED),
            median(&one, timed_operations::ADMIT_JUDGED) / median(&one, name),
        );
    }
    queueing_costs::measure(&mut report)?;
    Ok(report)
}

/// Returns the nanoseconds per operation of each contender (timed operation), one value per round.
fn rounds(all: &[Contender], threads: usize) -> Vec<Vec<f64>> {
    let mut times = vec![Vec::with_capacity(ROUNDS); all.len()];
    for _ in 0..ROUNDS {
        for (times, contender) in times.iter_mut().zip(all) {
            times.push(round(contender, threads));
        }
    }
    times
}

fn round(contender: &Contender, threads: usize) -> f64 {
    let batch = BATCH / contender.slower;
    let runtime = tokio::runtime::Handle::current();
    let barrier = Barrier::new(threads);
    let took: Vec<f64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let _entered = runtime.enter();
                    let mut work = (contender.make)();
                    (0..batch / 10).for_each(|_| work());
                    barrier.wait();
                    let start = std_now();
                    (0..batch).for_each(|_| black_box(&mut work)());
                    start.elapsed().as_secs_f64()
                })
            })
            .collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    took.iter().copied().fold(0.0, f64::max) * 1e9 / batch as f64
}

/// Returns the current time. The cost of reading the clock is part of the measured time.
#[allow(clippy::disallowed_methods)]
pub(crate) fn std_now() -> std::time::Instant {
    std::time::Instant::now()
}
