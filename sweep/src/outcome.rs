//! What a sweep comes to, whole: what `result.json` holds, and reports are made of.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::observation::FailureCause;
use crate::result::{StepResult, SweepAnswer};
use crate::search::SearchSettings;
use crate::spend::{Ceiling, SweepSpend, TokenPrices};

/// The shape of [`SweepOutcome`] as JSON; a reader refuses what it does not know.
pub const FORMAT: u32 = 1;

/// All that a sweep came to. Times are seconds since it began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepOutcome {
    /// [`FORMAT`] of whoever wrote it.
    pub format: u32,
    /// The cap, and why.
    pub answer: SweepAnswer,
    /// Each cap that was held, in the order of time.
    pub steps: Vec<StepResult>,
    /// What it took.
    pub spend: SweepSpend,
    /// What was checked of the measurement itself.
    pub checks: Vec<Check>,
    /// TOML to paste into a configuration; empty where there is no answer.
    pub lines: String,
    /// How it ended.
    pub ended: SweepEnd,
    /// What was measured, with what.
    pub provenance: Provenance,
    /// What became of the calls of each step.
    #[serde(default)]
    pub calls: Vec<CallOutcomes>,
    /// Slots and queue over time, thinned out to at most [`SeriesPoint::MOST`].
    pub series: Vec<SeriesPoint>,
}

/// What became of the calls that were begun in a step, its warm-up's among them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallOutcomes {
    /// The step's number.
    pub step: usize,
    /// Answered whole by the first attempt.
    pub first_try: usize,
    /// Answered whole by a later one.
    pub retried: usize,
    /// Given up, by the cause of the last attempt.
    pub failed: BTreeMap<FailureCause, usize>,
}

/// Why a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", content = "which", rename_all = "snake_case")]
pub enum SweepEnd {
    /// The search was done.
    Found,
    /// Somebody stopped it; what is known is told.
    Interrupted,
    /// The next call could have broken a ceiling.
    Ceiling(Ceiling),
    /// The server takes no more calls of this key: it was withdrawn, or its quota is used up.
    Refused,
}

/// Something that must hold for the measurement to mean what it says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Its name: `work_conserving`, `stability`, `success`, `littles_law`, `client`, `mix`.
    pub name: String,
    /// What came of it.
    pub passed: CheckResult,
    /// What was looked at and found, in a sentence.
    pub told: String,
}

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckResult {
    /// It holds.
    Yes,
    /// It does not.
    No,
    /// There was too little to say.
    Unknown,
}

/// What was measured, with what. Holds no key, and of a URL no user, password or query.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Provenance {
    /// Of Tidegate.
    pub version: String,
    /// The target's name in the lines to paste.
    pub target: String,
    /// Where calls went.
    pub url: String,
    /// The model that they named.
    pub model: String,
    /// `chat`, `completions`, `responses`, `messages`.
    pub api: String,
    /// What the preflight's answer said under `server`.
    pub server: Option<String>,
    /// The mix, in words: where prompts are from and how long they are.
    pub mix: String,
    /// The seed of prompts and lengths.
    pub seed: u64,
    /// How the search went about it.
    pub settings: SearchSettings,
    /// Attempts that a call may have.
    pub attempts: u32,
    /// Prices, where they are known.
    pub prices: Option<TokenPrices>,
    /// When it began, in RFC 3339; `None`: nobody said (under a clock that is not the wall's).
    pub began: Option<String>,
    /// How often it was resumed.
    pub resumed: u32,
}

/// Slots and queue at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeriesPoint {
    /// When.
    pub at: f64,
    /// Slots in force.
    pub cap: usize,
    /// Slots held.
    pub in_flight: usize,
    /// Calls that waited for one.
    pub waiting: usize,
    /// Calls that had been answered whole by then.
    pub completed: usize,
    /// Attempts that had failed by then.
    pub failed: usize,
}

impl SeriesPoint {
    /// A series holds no more of them.
    pub const MOST: usize = 2_000;
}
