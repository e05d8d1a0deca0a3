//! Settings of a search.

use serde::{Deserialize, Serialize};

/// Settings of a search. The defaults are those of the command line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SearchSettings {
    /// Lowest cap to measure. Default 1.
    pub min_cap: usize,
    /// First cap to measure. Default 4.
    pub start: usize,
    /// Highest cap to measure. Default 512.
    pub max_cap: usize,
    /// Maximum relative loss of goodput at the answer, compared with the best. Default 0.02.
    pub tolerance: f64,
    /// Acceptable share of failed attempts. Default 0.005.
    pub fine: f64,
    /// Share of failed attempts that rejects a cap. Default 0.03.
    pub too_many: f64,
    /// Error probability of the test that separates the two shares, per step and direction. Default
    /// 0.05.
    pub error_rate: f64,
    /// Confidence level of intervals. Default 0.95.
    pub confidence: f64,
    /// Objective for the time from admission to the first token, in seconds. Without it, every
    /// completed call is good.
    pub ttft: Option<f64>,
    /// Objective for the mean time between tokens of a call, in seconds.
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
