//! Compares the model's figures over many seeds with those of the noisy-neighbour blog post.

use super::{Arrivals, CallSummary, Run, RunReport, noisy_neighbour, quantile};
use crate::config::SimConfig;

/// One metric of one tenant, as the blog post reports it and as the model gives it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CalibrationFigure {
    /// Name of the tenant: `A`, `B` or `C`.
    pub tenant: &'static str,
    /// The metric. It determines the unit of the values.
    pub metric: CalibrationMetric,
    /// Value in the blog post.
    pub post: f64,
    /// Median of the model's values over the seeds.
    pub median: f64,
    /// Minimum of the model's values over the seeds.
    pub least: f64,
    /// Maximum of the model's values over the seeds.
    pub most: f64,
}

/// The metrics that the blog post reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalibrationMetric {
    /// Median time to first token, in milliseconds.
    TtftMedian,
    /// 99th percentile of the time to first token, in milliseconds.
    TtftP99,
    /// Median time per output token, in milliseconds.
    Decode,
    /// Maximum number of calls in flight at the same time.
    PeakInFlight,
}

impl CalibrationMetric {
    /// All metrics, in the order of the columns in the blog post.
    pub const ALL: [Self; 4] = [Self::TtftMedian, Self::TtftP99, Self::Decode, Self::PeakInFlight];

    fn value(self, summary: &CallSummary) -> f64 {
        match self {
            Self::TtftMedian => summary.ttft_median_ms,
            Self::TtftP99 => summary.ttft_p99_ms,
            Self::Decode => summary.decode_median_ms,
            Self::PeakInFlight => summary.peak_in_flight as f64,
        }
    }

    /// Returns the metric's name with its unit, as a column heading.
    pub fn name(self) -> &'static str {
        match self {
            Self::TtftMedian => "median TTFT, ms",
            Self::TtftP99 => "p99 TTFT, ms",
            Self::Decode => "time per output token, ms",
            Self::PeakInFlight => "peak in flight",
        }
    }
}

impl CalibrationFigure {
    /// Returns the model's median divided by the blog post's value.
    pub fn ratio(&self) -> f64 {
        self.median / self.post
    }

    /// Returns `true` if the blog post's value lies between the minimum and the maximum over the
    /// seeds, inclusive.
    pub fn in_range(&self) -> bool {
        (self.least..=self.most).contains(&self.post)
    }

    /// Returns `Some(true)` if the model is close enough to the blog post, and `None` for the
    /// median time to first token, which has no tolerance.
    ///
    /// The 99th percentile of the time to first token is close enough if the ratio differs from 1
    /// by at most 0.15, or if the blog post's value is in the range over the seeds. For the other
    /// two metrics, the ratio may differ by at most 0.3.
    pub fn holds(&self) -> Option<bool> {
        let within = |share: f64| (self.ratio() - 1.0).abs() <= share;
        match self.metric {
            CalibrationMetric::TtftMedian => None,
            CalibrationMetric::TtftP99 => Some(within(0.15) || self.in_range()),
            CalibrationMetric::Decode | CalibrationMetric::PeakInFlight => Some(within(0.30)),
        }
    }
}

/// Returns the blog post's figures for a run: for each tenant, one value per metric in the order of
/// [`CalibrationMetric::ALL`]. The post does not report the peaks of run 1, which are `None`.
fn post(run: Run) -> &'static [(&'static str, [Option<f64>; 4])] {
    match run {
        Run::Baseline => &[
            ("A", [Some(195.0), Some(263.0), Some(61.0), None]),
            ("C", [Some(187.0), Some(230.0), Some(61.0), None]),
        ],
        Run::CapsOff => &[
            ("A", [Some(1_280.0), Some(33_200.0), Some(131.0), Some(126.0)]),
            ("B", [Some(5_514.0), Some(34_277.0), Some(267.0), Some(450.0)]),
            ("C", [Some(6_137.0), Some(32_444.0), Some(134.0), Some(73.0)]),
        ],
    }
}

/// Plays a run once per seed, and compares each figure of the blog post with the model's values.
pub fn calibration(
    config: &SimConfig,
    run: Run,
    arrivals: Arrivals,
    seeds: impl IntoIterator<Item = u64>,
) -> Vec<CalibrationFigure> {
    let reports: Vec<RunReport> =
        seeds.into_iter().map(|seed| noisy_neighbour(config, run, arrivals, seed)).collect();
    let mut figures = Vec::new();
    for (tenant, row) in post(run) {
        for (metric, post) in CalibrationMetric::ALL.into_iter().zip(row) {
            let Some(post) = *post else { continue };
            let of_tenant = |r: &RunReport| {
                r.tenants.iter().find(|(name, _)| name == tenant).map(|(_, s)| metric.value(s))
            };
            let mut values: Vec<f64> = reports.iter().filter_map(of_tenant).collect();
            let [median, least, most] = [0.5, 0.0, 1.0].map(|q| quantile(&mut values, q));
            figures.push(CalibrationFigure { tenant, metric, post, median, least, most });
        }
    }
    figures
}
