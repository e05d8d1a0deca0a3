//! The model's figures over many seeds beside the post's.

use super::{Arrivals, CallSummary, Run, RunReport, noisy_neighbour, quantile};
use crate::config::SimConfig;

/// One figure of one tenant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CalibrationFigure {
    /// The tenant's name.
    pub tenant: &'static str,
    /// Which of the post's columns.
    pub metric: CalibrationMetric,
    /// What the post says.
    pub post: f64,
    /// Median over the seeds.
    pub median: f64,
    /// Least over the seeds.
    pub least: f64,
    /// Most over the seeds.
    pub most: f64,
}

/// The post's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalibrationMetric {
    /// Median TTFT, ms.
    TtftMedian,
    /// p99 TTFT, ms.
    TtftP99,
    /// Median time per token, ms.
    Decode,
    /// Most calls in flight.
    PeakInFlight,
}

impl CalibrationMetric {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::TtftMedian, Self::TtftP99, Self::Decode, Self::PeakInFlight];

    fn of(self, summary: &CallSummary) -> f64 {
        match self {
            Self::TtftMedian => summary.ttft_median_ms,
            Self::TtftP99 => summary.ttft_p99_ms,
            Self::Decode => summary.decode_median_ms,
            Self::PeakInFlight => summary.peak_in_flight as f64,
        }
    }

    /// Heading.
    pub fn name(self) -> &'static str {
        match self {
            Self::TtftMedian => "median TTFT, ms",
            Self::TtftP99 => "p99 TTFT, ms",
            Self::Decode => "decode, ms a token",
            Self::PeakInFlight => "peak in flight",
        }
    }
}

impl CalibrationFigure {
    /// The model's median over the post's figure.
    pub fn ratio(&self) -> f64 {
        self.median / self.post
    }

    /// Whether the post's figure is one that the model gave with some seed.
    pub fn in_range(&self) -> bool {
        (self.least..=self.most).contains(&self.post)
    }

    /// Whether it is as near as was asked: p99 TTFT within 15 % or inside the range, decode and peak within
    /// 30 %. Medians of TTFT have no bar.
    pub fn holds(&self) -> Option<bool> {
        let within = |share: f64| (self.ratio() - 1.0).abs() <= share;
        match self.metric {
            CalibrationMetric::TtftMedian => None,
            CalibrationMetric::TtftP99 => Some(within(0.15) || self.in_range()),
            CalibrationMetric::Decode | CalibrationMetric::PeakInFlight => Some(within(0.30)),
        }
    }
}

/// The post's figures of a run: tenant, then as [`CalibrationMetric::ALL`]; it does not give run 1's peaks.
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

/// Plays a run once for each seed and sets every figure beside the post's.
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
