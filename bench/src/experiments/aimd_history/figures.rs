//! Computes the figures of a run from its calls and its budget (the maximum number of calls in
//! flight).

use std::time::Duration;

use tidegate_sim::scenario::quantile;

use super::gateway::{Call, RunHistory};
use super::{TARGET, WORKERS};

/// The figures of a period of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Completed calls per second.
    pub(super) served: f64,
    /// Calls per second with a first token within the target of 2 s.
    pub(super) in_time: f64,
    /// Median time from arrival to first token, in seconds, of calls with a first token.
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// The rejected share of the calls that arrived, from 0 to 1.
    pub(super) refused: f64,
    /// The rejected share of the calls of A, the paying tenant, from 0 to 1.
    pub(super) refused_paying: f64,
    /// The mean number of calls in flight at a worker.
    pub(super) batch: f64,
    /// The mean budget per worker, in calls.
    pub(super) cap: f64,
    /// The lowest budget per worker, in calls.
    pub(super) least_cap: f64,
    /// The number of decreases of the budget.
    pub(super) cuts: f64,
    /// The number of changes of direction, from increases of the budget to decreases or back.
    pub(super) flips: f64,
}

impl RunHistory {
    /// Returns the figures of the period from `from` to `until`.
    pub(super) fn seen(&self, from: Duration, until: Duration) -> Seen {
        let seconds = (until - from).as_secs_f64();
        let within = |at: Option<Duration>| at.is_some_and(|at| (from..until).contains(&at));
        let count = |test: &dyn Fn(&Call) -> bool| self.calls.iter().filter(|call| test(call)).count() as f64;
        let user = |call: &Call| call.first_token.map(|at| at - call.came);
        let mut ttft: Vec<f64> = self
            .calls
            .iter()
            .filter(|call| within(call.first_token))
            .filter_map(|call| Some(user(call)?.as_secs_f64()))
            .collect();
        let came = count(&|call| within(Some(call.came)));
        let refused = count(&|call| within(Some(call.came)) && call.refused);
        let paying = count(&|call| within(Some(call.came)) && call.tenant == 0);
        let refused_paying = count(&|call| within(Some(call.came)) && call.tenant == 0 && call.refused);
        let with_workers = self.calls.iter().filter_map(|call| {
            let sent = call.sent?.max(from);
            Some(call.finished.unwrap_or(until).min(until).saturating_sub(sent).as_secs_f64())
        });
        let budget = self.between(from, until);
        let per_worker = |slots: usize| slots as f64 / WORKERS as f64;
        let steps: Vec<i64> = budget
            .windows(2)
            .filter_map(|pair| Some(pair.get(1)?.1 as i64 - pair.first()?.1 as i64))
            .collect();
        let flip =
            |pair: &&[i64]| pair.first().zip(pair.get(1)).is_some_and(|(a, b)| a.signum() != b.signum());
        let ends = budget.iter().skip(1).map(|&(at, _)| at).chain([until]);
        let area = budget.iter().zip(ends).map(|(&(at, slots), end)| (end - at).as_secs_f64() * slots as f64);
        Seen {
            served: count(&|call| within(call.finished)) / seconds,
            in_time: count(&|call| within(call.first_token) && user(call).is_some_and(|ttft| ttft <= TARGET))
                / seconds,
            p50: quantile(&mut ttft, 0.5),
            p99: quantile(&mut ttft, 0.99),
            refused: refused / came.max(1.0),
            refused_paying: refused_paying / paying.max(1.0),
            batch: with_workers.sum::<f64>() / seconds / WORKERS as f64,
            cap: area.sum::<f64>() / seconds / WORKERS as f64,
            least_cap: budget.iter().map(|&(_, slots)| slots).min().map_or(0.0, per_worker),
            cuts: steps.iter().filter(|&&step| step < 0).count() as f64,
            flips: steps.windows(2).filter(flip).count() as f64,
        }
    }

    /// Returns the budget at `from`, followed by its changes until `until`, with their times.
    fn between(&self, from: Duration, until: Duration) -> Vec<(Duration, usize)> {
        let before = self.budget.iter().rfind(|&&(at, _)| at <= from).or(self.budget.first());
        let changes = self.budget.iter().filter(|&&(at, _)| at > from && at < until);
        before.map(|&(_, slots)| (from, slots)).into_iter().chain(changes.copied()).collect()
    }
}
