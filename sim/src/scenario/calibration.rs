//! Compares the model's figures over many seeds with those of the blog post.

use super::{Arrivals, CallSummary, Run, RunReport, noisy_neighbour, quantile};
use crate::config::SimConfig;

/// One figure of one tenant, in the post and in the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CalibrationFigure {
    /// Name of the tenant.
    pub tenant: &'static str,
    /// The metric.
    pub metric: CalibrationMetric,
    /// Value in the post.
    pub post: f64,
    /// Median over the seeds.
    pub median: f64,
    /// Minimum over the seeds.
    pub least: f64,
    /// Maximum over the seeds.
    pub most: f64,
}

/// The metrics that the post reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalibrationMetric {
    /// Median TTFT, in milliseconds.
    TtftMedian,
    /// 99th percentile of the TTFT, in milliseconds.
    TtftP99,
    /// Median time per output token, in milliseconds.
    Decode,
    /// Maximum number of calls in flight at the same time.
    PeakInFlight,
}

impl CalibrationMetric {
    /// All metrics, in the order of the post's columns.
    pub const ALL: [Self; 4] = [Self::TtftMedian, Self::TtftP99, Self::Decode, Self::PeakInFlight];

    fn of(self, summary: &CallSummary) -> f64 {
        match self {
            Self::TtftMedian => summary.ttft_median_ms,
            Self::TtftP99 => summary.ttft_p99_ms,
            Self::Decode => summary.decode_median_ms,
            Self::PeakInFlight => summary.peak_in_flight as f64,
        }
    }

    /// Returns the column heading.
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
    /// Returns the model's median divided by the post's value.
    pub fn ratio(&self) -> f64 {
        self.median / self.post
    }

    /// Returns `true` if the post's value lies within the range over the seeds.
    pub fn in_range(&self) -> bool {
        (self.least..=self.most).contains(&self.post)
    }

    /// Returns whether the figure is within its tolerance, or `None` if it has none.
    ///
    /// The tolerance of the p99 TTFT is 15 % or the range over the seeds, that of decode and peak
    /// is 30 %. Median TTFTs have no tolerance.
    pub fn holds(&self) -> Option<bool> {
        let within = |share: f64| (self.ratio() - 1.0).abs() <= share;
        match self.metric {
            CalibrationMetric::TtftMedian => None,
            CalibrationMetric::TtftP99 => Some(within(0.15) || self.in_range()),
            CalibrationMetric::Decode | CalibrationMetric::PeakInFlight => Some(within(0.30)),
        }
    }
}

/// Returns the post's figures of a run, by tenant in the order of [`CalibrationMetric::ALL`]. The
/// post does not report the peaks of run 1.
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

/// Plays a run once per seed, and compares every figure with the post's.
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
            let of_tenant =
                |r: &RunReport| r.tenants.iter().find(|(name, _)| name == tenant).map(|(_, s)| metric.of(s));
            let mut values: Vec<f64> = reports.iter().filter_map(of_tenant).collect();
            let [median, least, most] = [0.5, 0.0, 1.0].map(|q| quantile(&mut values, q));
            figures.push(CalibrationFigure { tenant, metric, post, median, least, most });
        }
    }
    figures
}
