//! Compares the answers of sweeps and peers with the measured truth (the best cap of the server).

use tidegate_sweep::{Binding, SweepEnd};

use super::oracle::Curve;
use super::peers::Found;
use super::run_sweep::SweepResult;
use super::scenarios::Scenario;
use crate::Fallible;

/// The answer of one sweep or peer, its cost, and its comparison with the truth.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) seed: u64,
    pub(crate) cap: Option<usize>,
    pub(crate) interval: Option<(usize, usize)>,
    pub(crate) binding: Option<Binding>,
    pub(crate) true_cap: usize,
    /// The goodput in the long run with the suggested configuration, divided by the goodput at the
    /// best stable cap ([`Yield::is_stable`](super::long_run_yield::Yield::is_stable)). 0 if the
    /// sweep gave no answer.
    pub(crate) ratio: f64,
    /// Whether more than 1 % of attempts fail, or the client is overloaded, in the long run with
    /// the suggested configuration.
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
    /// Compares the answer of a sweep with the best cap of the server, as measured by `curve`. The
    /// answer is a configuration with a cap, and with rates if these limit the server.
    pub(crate) fn of(scenario: &Scenario, played: &SweepResult, curve: &Curve, seed: u64) -> Fallible<Self> {
        let answer = &played.outcome.answer;
        let truth = curve.truth();
        let yields = match answer.cap {
            None => None,
            // The yield of a plain cap is measured once and kept. An answer that is not confirmed
            // has no configuration.
            Some(cap) if !curve.has_rates() || !answer.confirmed => Some(curve.at(cap)?),
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
