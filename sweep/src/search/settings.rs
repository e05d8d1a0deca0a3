//! How a search goes.

use serde::{Deserialize, Serialize};

/// How a search goes. The defaults are what the command line has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SearchSettings {
    /// The lowest cap that is looked at. Default 1.
    pub min_cap: usize,
    /// The first cap. Default 4.
    pub start: usize,
    /// The highest cap. Default 512.
    pub max_cap: usize,
    /// How far below the best goodput the answer's may be. Default .02.
    pub tolerance: f64,
    /// The share of failed attempts that is fine. Default .005.
    pub fine: f64,
    /// The share of failed attempts that is too many. Default .03.
    pub too_many: f64,
    /// How often what is fine may be called too many, and the other way round, in one step. Default .05.
    pub error_rate: f64,
    /// How often intervals shall hold the truth. Default .95.
    pub confidence: f64,
    /// Seconds from admission to first token; `None`: every completed call is good.
    pub ttft: Option<f64>,
    /// Seconds between tokens, in the mean of a call.
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
