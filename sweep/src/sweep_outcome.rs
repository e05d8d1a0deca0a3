//! The complete outcome of a sweep: the content of `result.json` and the source of every report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::observation::FailureCause;
use crate::search::SearchSettings;
use crate::search_result::{StepResult, SweepAnswer};
use crate::spend::{Ceiling, SweepSpend, TokenPrices};

/// Version of the JSON form of [`SweepOutcome`]. Readers must reject versions that they do not
/// know.
pub const FORMAT: u32 = 1;

/// Outcome of a sweep, complete or partial. Times are in seconds since the sweep began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepOutcome {
    /// Version of the JSON form: the [`FORMAT`] of the program that wrote it.
    pub format: u32,
    /// Recommended cap, with its interval and its explanation.
    pub answer: SweepAnswer,
    /// Results of all steps, in order of time.
    pub steps: Vec<StepResult>,
    /// Calls, tokens, cost and time that the sweep used.
    pub spend: SweepSpend,
    /// Checks of whether the measurement is valid.
    pub checks: Vec<Check>,
    /// Target configuration in TOML with the recommended cap, to be pasted. Empty if no cap is
    /// recommended or the cap is not confirmed.
    pub lines: String,
    /// Whether the search finished, and otherwise what ended the sweep early.
    pub ended: SweepEnd,
    /// Server, model, requests and settings of the sweep.
    pub provenance: Provenance,
    /// Numbers of answered, retried and failed calls of each step. Empty in files of older
    /// versions.
    #[serde(default)]
    pub calls: Vec<CallOutcomes>,
    /// Numbers of calls in flight and waiting over time, at most [`SeriesPoint::MAX_POINTS`]
    /// points.
    pub series: Vec<SeriesPoint>,
}

/// Numbers of calls that started in one step, including its warm-up, by how they ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallOutcomes {
    /// Number of the step, from 0.
    pub step: usize,
    /// Number of calls whose first attempt was answered completely.
    pub first_try: usize,
    /// Number of calls that were answered completely after at least one failed attempt.
    pub retried: usize,
    /// Number of calls that failed after their retries, by the cause of the last failure.
    pub failed: BTreeMap<FailureCause, usize>,
}

/// Why a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", content = "which", rename_all = "snake_case")]
pub enum SweepEnd {
    /// The search finished, with or without a recommended cap.
    Found,
    /// The user stopped the sweep. The result is partial.
    Interrupted,
    /// A further request could have exceeded this ceiling. The result is partial.
    Ceiling(Ceiling),
    /// The server rejects every further call with this key: the key was revoked or its quota is
    /// exhausted. The result is partial.
    Refused,
}

/// Result of checking one condition that a valid measurement satisfies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Name of the check: `work_conserving`, `stability`, `success`, `littles_law`, `client` or
    /// `mix`.
    pub name: String,
    /// Whether the condition holds.
    pub passed: CheckResult,
    /// Sentence that states what was compared, with the measured figures.
    #[serde(rename = "told")]
    pub finding: String,
}

/// Whether the condition of a [`Check`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckResult {
    /// The condition holds.
    Yes,
    /// The condition does not hold, so the answer may be wrong.
    No,
    /// The steps have too few calls or attempts to check the condition.
    Unknown,
}

/// Server, model, requests and settings of a sweep. Contains no API key, and no user, password or
/// query of a URL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Provenance {
    /// Version of Tidegate that ran the sweep.
    pub version: String,
    /// Name of the target in the printed configuration.
    pub target: String,
    /// Base URL of the server, without query.
    pub url: String,
    /// Model name that the requests contained.
    pub model: String,
    /// API of the endpoint: `chat`, `completions`, `responses` or `messages`.
    pub api: String,
    /// `server` header of the preflight response, or `None` if there was none.
    pub server: Option<String>,
    /// Description of the requests: where they come from and how long they are.
    pub mix: String,
    /// Seed of prompt texts, lengths and order.
    pub seed: u64,
    /// Caps, thresholds and objectives of the search.
    pub settings: SearchSettings,
    /// Maximum number of attempts per call, including the first.
    pub attempts: u32,
    /// Token prices, or `None` if no prices were given.
    pub prices: Option<TokenPrices>,
    /// Start time in RFC 3339, or `None` if unknown, as in virtual time.
    pub began: Option<String>,
    /// Number of times that the sweep was resumed from its journal.
    pub resumed: u32,
}

/// Numbers of calls at one time of the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeriesPoint {
    /// Time in seconds since the sweep began.
    pub at: f64,
    /// Cap of the gate at that time.
    pub cap: usize,
    /// Number of exchanges that were open.
    pub in_flight: usize,
    /// Number of calls that waited for a slot.
    pub waiting: usize,
    /// Number of calls answered completely since the sweep began.
    pub completed: usize,
    /// Number of attempts that failed since the sweep began.
    pub failed: usize,
}

impl SeriesPoint {
    /// Maximum number of points in [`SweepOutcome::series`].
    pub const MAX_POINTS: usize = 2_000;
}
