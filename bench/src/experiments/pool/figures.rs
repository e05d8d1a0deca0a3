//! Computes the figures of a run from its records.

use std::time::Duration;

use tidegate_sim::scenario::quantile;

use super::replicas::{PROMPT_TOKEN_MS, Work};
use super::workload::Call;

/// A call, and the time of its first token.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answered {
    pub(crate) came: Duration,
    pub(crate) input: u32,
    pub(crate) first_token: Option<Duration>,
    /// Whether the call arrived in the measured part of the run, when caches were warm.
    pub(crate) measured: bool,
}

impl Answered {
    pub(crate) fn of(call: &Call) -> Self {
        Self { came: call.at, input: call.input, first_token: None, measured: false }
    }

    /// Returns the seconds from the call's arrival to its first token. 3,600 if there was none.
    pub(crate) fn ttft_s(&self) -> f64 {
        self.first_token.map_or(3_600.0, |at| at.saturating_sub(self.came).as_secs_f64())
    }

    /// Returns `true` if the first token came within 1 s plus twice the time to compute the whole
    /// prompt.
    fn in_time(&self) -> bool {
        self.ttft_s() <= 1.0 + 2.0 * f64::from(self.input) * PROMPT_TOKEN_MS / 1e3
    }
}

/// The records of a run, from which its figures are computed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) calls: Vec<Answered>,
    /// The number of streams that broke because their replica was killed.
    pub(crate) truncated: u64,
    /// The time of the last event, since the start of the run.
    pub(crate) last: Duration,
    /// Sum, over all measured arrivals, of the number of calls at the fullest replica at that
    /// moment.
    most: f64,
    /// Sum, over all measured arrivals, of the mean number of calls per replica at that moment.
    mean: f64,
    work: Work,
}

impl Run {
    /// Adds one sample of the replicas' load: `counts`, the number of calls at each replica when a
    /// call arrives.
    pub(crate) fn seen(&mut self, counts: impl Iterator<Item = usize> + Clone) {
        self.most += counts.clone().max().unwrap_or_default() as f64;
        self.mean += counts.clone().sum::<usize>() as f64 / counts.count().max(1) as f64;
    }

    /// Adds the work that each engine did between two readings of the counters, `from` and `to`.
    pub(crate) fn did(&mut self, from: &[Work], to: &[Work]) {
        for (place, to) in to.iter().enumerate() {
            let from = from.get(place).copied().unwrap_or_default();
            self.work.asked += to.asked - from.asked;
            self.work.cached += to.cached - from.cached;
            self.work.computed += to.computed - from.computed;
        }
    }

    pub(crate) fn figures(&self) -> Figures {
        let measured: Vec<&Answered> = self.calls.iter().filter(|call| call.measured).collect();
        let mut ttft: Vec<f64> = measured.iter().map(|call| call.ttft_s()).collect();
        let good = measured.iter().filter(|call| call.in_time()).count();
        let span = measured
            .first()
            .zip(measured.last())
            .map_or(1.0, |(first, last)| (last.came - first.came).as_secs_f64());
        let computing = self.work.computed as f64 * PROMPT_TOKEN_MS / 1e3;
        Figures {
            p50_s: quantile(&mut ttft, 0.5),
            p99_s: quantile(&mut ttft, 0.99),
            mean_s: ttft.iter().sum::<f64>() / ttft.len().max(1) as f64,
            hit_rate: self.work.cached as f64 / self.work.asked.max(1) as f64,
            spread: self.most / self.mean.max(1e-9),
            goodput: good as f64 / measured.len().max(1) as f64,
            truncated: self.truncated as f64,
            computing: computing / (span * super::replicas::REPLICAS as f64),
        }
    }
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Median of the times to first token, in seconds.
    pub(crate) p50_s: f64,
    pub(crate) p99_s: f64,
    pub(crate) mean_s: f64,
    /// The cached share of the prompt tokens, from 0 to 1.
    pub(crate) hit_rate: f64,
    /// The number of calls at the fullest replica, divided by the mean over the replicas. Both are
    /// first summed over all arrivals.
    pub(crate) spread: f64,
    /// The share of the calls that had their first token in time, from 0 to 1.
    pub(crate) goodput: f64,
    /// The number of streams that broke because their replica was killed. The other figures include
    /// these streams with the times of their first tokens.
    pub(crate) truncated: f64,
    /// The share of the engines' time in which they computed prompts, from 0 to 1.
    pub(crate) computing: f64,
}
