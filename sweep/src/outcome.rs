//! The complete outcome of a sweep: the content of `result.json` and the source of reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::observation::FailureCause;
use crate::result::{StepResult, SweepAnswer};
use crate::search::SearchSettings;
use crate::spend::{Ceiling, SweepSpend, TokenPrices};

/// Version of [`SweepOutcome`] as JSON. A reader rejects an unknown version.
pub const FORMAT: u32 = 1;

/// The complete outcome of a sweep. Times are in seconds since the sweep began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepOutcome {
    /// [`FORMAT`] of the version that wrote the outcome.
    pub format: u32,
    /// The cap and its explanation.
    pub answer: SweepAnswer,
    /// Every step, in order of time.
    pub steps: Vec<StepResult>,
    /// Resources used.
    pub spend: SweepSpend,
    /// Checks of the measurement.
    pub checks: Vec<Check>,
    /// TOML to paste into a configuration, or empty if there is no answer.
    pub lines: String,
    /// How the sweep ended.
    pub ended: SweepEnd,
    /// What was measured, and with which settings.
    pub provenance: Provenance,
    /// Outcomes of the calls of each step.
    #[serde(default)]
    pub calls: Vec<CallOutcomes>,
    /// Slots and queue over time, thinned to at most [`SeriesPoint::MOST`] points.
    pub series: Vec<SeriesPoint>,
}

/// Outcomes of the calls that began in a step, including its warm-up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallOutcomes {
    /// Number of the step.
    pub step: usize,
    /// Calls answered completely by the first attempt.
    pub first_try: usize,
    /// Calls answered completely by a later attempt.
    pub retried: usize,
    /// Calls given up, by the cause of the last failure.
    pub failed: BTreeMap<FailureCause, usize>,
}

/// How a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", content = "which", rename_all = "snake_case")]
pub enum SweepEnd {
    /// The search found its answer.
    Found,
    /// The user stopped the sweep. The result is partial.
    Interrupted,
    /// The next call could have exceeded a ceiling.
    Ceiling(Ceiling),
    /// The server rejects all further calls with this key, because the key was revoked or its quota
    /// is exhausted.
    Refused,
}

/// A condition that must hold for the measurement to be valid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Name: `work_conserving`, `stability`, `success`, `littles_law`, `client` or `mix`.
    pub name: String,
    /// Whether the condition holds.
    pub passed: CheckResult,
    /// What was compared, with figures, in a sentence.
    pub told: String,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckResult {
    /// The condition holds.
    Yes,
    /// The condition does not hold.
    No,
    /// There was too little data.
    Unknown,
}

/// What was measured, and with which settings. Contains no API key, and no user, password or query
/// of a URL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Provenance {
    /// Version of Tidegate.
    pub version: String,
    /// Name of the target in the configuration to paste.
    pub target: String,
    /// Base URL of the server.
    pub url: String,
    /// Model that the calls named.
    pub model: String,
    /// `chat`, `completions`, `responses` or `messages`.
    pub api: String,
    /// `server` header of the preflight response.
    pub server: Option<String>,
    /// Description of the mix: the source of the prompts and their lengths.
    pub mix: String,
    /// Seed of the prompts and lengths.
    pub seed: u64,
    /// Settings of the search.
    pub settings: SearchSettings,
    /// Maximum number of attempts per call.
    pub attempts: u32,
    /// Token prices, if known.
    pub prices: Option<TokenPrices>,
    /// Start time in RFC 3339, or `None` if unknown, as under a virtual clock.
    pub began: Option<String>,
    /// How often the sweep was resumed.
    pub resumed: u32,
}

/// Slots and queue at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeriesPoint {
    /// Time in seconds since the sweep began.
    pub at: f64,
    /// The cap.
    pub cap: usize,
    /// Calls in flight.
    pub in_flight: usize,
    /// Calls waiting for a slot.
    pub waiting: usize,
    /// Calls answered completely so far.
    pub completed: usize,
    /// Attempts failed so far.
    pub failed: usize,
}

impl SeriesPoint {
    /// Maximum number of points in a series.
    pub const MOST: usize = 2_000;
}
