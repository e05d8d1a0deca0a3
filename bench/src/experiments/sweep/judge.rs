//! A sweep's answer against the truth.

use tidegate_sweep::{Binding, SweepEnd};

use super::oracle::Curve;
use super::peers::Found;
use super::play::Played;
use super::scenarios::Scenario;
use crate::Fallible;

/// What is held against bars.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) seed: u64,
    pub(crate) cap: Option<usize>,
    pub(crate) interval: Option<(usize, usize)>,
    pub(crate) binding: Option<Binding>,
    pub(crate) true_cap: usize,
    /// Calls a second in the long run with the lines to paste, over those at the best stable cap. Without an answer 0.
    pub(crate) ratio: f64,
    /// In the long run too many fail with these lines.
    pub(crate) infeasible: bool,
    pub(crate) class_right: bool,
    pub(crate) covers: bool,
    pub(crate) calls: usize,
    pub(crate) attempts: usize,
    pub(crate) seconds: f64,
    pub(crate) because: String,
    pub(crate) notes: Vec<String>,
}

impl Verdict {
    /// `lines` are what is pasted: a cap, and rates where these bind.
    pub(crate) fn of(scenario: &Scenario, played: &Played, curve: &Curve, seed: u64) -> Fallible<Self> {
        let answer = &played.outcome.answer;
        let truth = curve.truth();
        let yields = match answer.cap {
            None => None,
            // A plain cap was measured already, or will be.
            Some(cap) if !curve.has_rates() => Some(curve.at(cap)?),
            Some(cap) => Some(curve.lines(&played.outcome.lines, cap)?),
        };
        let inside =
            |(low, high): (usize, usize)| low <= truth.cap && (truth.cap <= high || answer.open_above);
        Ok(Self {
            seed,
            cap: answer.cap,
            interval: answer.interval,
            binding: answer.binding,
            true_cap: truth.cap,
            ratio: yields.map_or(0.0, |yields| yields.goodput / truth.goodput),
            infeasible: yields.is_some_and(|yields| !yields.is_stable()),
            class_right: answer.binding == Some(scenario.binds) && played.outcome.ended == SweepEnd::Found,
            covers: answer.interval.is_some_and(inside),
            calls: played.outcome.spend.calls,
            attempts: played.outcome.spend.attempts,
            seconds: played.outcome.spend.seconds,
            because: answer.because.clone(),
            notes: answer.notes.clone(),
        })
    }

    pub(crate) fn of_peer(found: Found, curve: &Curve, seed: u64) -> Fallible<Self> {
        let truth = curve.truth();
        let yields = curve.plain(found.cap)?;
        Ok(Self {
            seed,
            cap: Some(found.cap),
            interval: None,
            binding: None,
            true_cap: truth.cap,
            ratio: yields.goodput / truth.goodput,
            infeasible: !yields.is_stable(),
            class_right: false,
            covers: false,
            calls: found.calls,
            attempts: found.calls,
            seconds: found.seconds,
            because: String::new(),
            notes: Vec::new(),
        })
    }
}
