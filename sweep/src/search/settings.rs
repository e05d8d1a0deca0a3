//! Settings of a search.

use serde::{Deserialize, Serialize};

/// Caps, thresholds and objectives of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SearchSettings {
    /// Lowest cap to measure. Default 1.
    pub min_cap: usize,
    /// First cap to measure. Default 4.
    pub start: usize,
    /// Highest cap to measure. Default 512.
    pub max_cap: usize,
    /// Share by which the goodput at the answer may be below the best goodput, above 0 and below 1.
    /// Default 0.02.
    pub tolerance: f64,
    /// Share of failed attempts that is acceptable at a cap, above 0 and below `too_many`. Default
    /// 0.005.
    pub fine: f64,
    /// Share of failed attempts at which a cap is rejected, below 1. Default 0.03.
    pub too_many: f64,
    /// Maximum probability that a step is accepted although the share of failed attempts is
    /// `too_many`, or rejected although this share is only `fine`. Default 0.05.
    pub error_rate: f64,
    /// Confidence level of all intervals, above 0 and below 1. Default 0.95.
    pub confidence: f64,
    /// Objective for the time from admission to the first token, in seconds. Slower calls do not
    /// count as goodput. Default `None`: no objective.
    pub ttft: Option<f64>,
    /// Objective for the mean time between the tokens of a call, in seconds. Slower calls do not
    /// count as goodput. Default `None`: no objective.
    pub tpot: Option<f64>,
}

impl Default for SearchSettings {
    fn default() -> Self {
        Self {
            min_cap: 1,
            start: 4,
            max_cap: 512,
            tolerance: 0.02,
            fine: 0.005,
            too_many: 0.03,
            error_rate: 0.05,
            confidence: 0.95,
            ttft: None,
            tpot: None,
        }
    }
}
