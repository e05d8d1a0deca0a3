//! Prints the state of a gate's limit during a run, to show why the limit changed.

use std::time::Duration;

use tidegate::Gate;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval};

/// The maximum number of recent changes of the limit that are printed per line.
const MOVES: usize = 4;

/// Starts a task that prints the state of the limit of the gate's first target at each interval
/// `every`, until the task is aborted.
pub(super) fn watch(gate: &Gate, every: Duration) -> JoinHandle<()> {
    let (gate, start) = (gate.clone(), Instant::now());
    println!("     s limit awaiting in flight waiting  late  evidence  cuts raises  last moves");
    tokio::spawn(async move {
        let mut ticks = interval(every);
        loop {
            ticks.tick().await;
            tell(&gate, start.elapsed(), every);
        }
    })
}

fn tell(gate: &Gate, at: Duration, every: Duration) {
    let snapshot = gate.snapshot();
    let Some((_, target)) = snapshot.targets.iter().next() else { return };
    let (limit, flying, waiting) = (target.limit, target.in_flight, target.queue_depth);
    let Some(adaptive) = &target.adaptive else {
        println!("{:>6.1} {limit:>5} {:>8} {flying:>9} {waiting:>7}", at.as_secs_f64(), "");
        return;
    };
    let awaiting = format!("{}/{}", adaptive.awaiting, adaptive.awaiting_limit);
    let late = adaptive.late.map_or("-".to_owned(), |late| format!("{:.0}%", late * 100.0));
    let fresh = adaptive.decisions.iter().filter(|decision| decision.ago <= every.as_secs_f64());
    let moves: Vec<_> = fresh
        .rev()
        .take(MOVES)
        .map(|made| format!("{} {}→{} ({})", made.cause, made.from, made.to, made.awaiting))
        .collect();
    println!(
        "{:>6.1} {limit:>5} {awaiting:>8} {flying:>9} {waiting:>7} {late:>5} {:>9.2} {:>5} {:>6}  {}",
        at.as_secs_f64(),
        adaptive.evidence,
        adaptive.cuts,
        adaptive.raises,
        moves.join(", "),
    );
}
