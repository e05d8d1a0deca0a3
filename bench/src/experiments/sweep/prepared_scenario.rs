//! A scenario whose servers have known long-run yields (goodput and failures by cap), and the
//! sweeps that are run on it.

use std::collections::BTreeMap;

use tidegate_sweep::{Binding, SearchSettings, StepResult};

use super::comparison::Verdict;
use super::drawn_calls;
use super::oracle::Curve;
use super::peers::Peer;
use super::run_sweep::{SweepResult, play};
use super::scenarios::{Scenario, State, Variant};
use crate::Fallible;

/// A scenario, and the curves of long-run yields of its servers by [`Curve::key`]. Several variants
/// may have the same server.
pub(crate) struct PreparedScenario {
    pub(crate) scenario: Scenario,
    curves: BTreeMap<String, Curve>,
}

impl PreparedScenario {
    pub(crate) fn new(scenario: Scenario) -> Self {
        let mut curves = BTreeMap::new();
        for variant in scenario.variants() {
            for state in [State::Before, State::After] {
                let curve = Curve::of(&scenario, variant, state);
                // A server that does not change permanently has one long-run state.
                if state == State::After || scenario.changes_after(variant, 0).is_some() {
                    curves.insert(curve.key.clone(), curve);
                }
            }
        }
        Self { scenario, curves }
    }

    pub(crate) fn curves(&self) -> impl Iterator<Item = &Curve> {
        self.curves.values()
    }

    /// Returns the curve of long-run yields of a variant's server: after the change of the server
    /// if `changed` is `true`, otherwise before it. `None` if there is no such curve.
    pub(crate) fn curve(&self, variant: Variant, changed: bool) -> Option<&Curve> {
        let state = if changed { State::After } else { State::Before };
        self.curves.get(&Curve::of(&self.scenario, variant, state).key)
    }

    /// Runs a sweep on a seed, and returns its answer. `on_step` is called after each step of the
    /// sweep.
    pub(crate) fn sweep(
        &self,
        settings: &SearchSettings,
        seed: u64,
        on_step: impl FnMut(&StepResult) + Send,
    ) -> Fallible<SweepResult> {
        let variant = self.scenario.variant(seed);
        let server = self.scenario.server(variant, seed, State::Whole);
        let works = drawn_calls::draw(self.scenario.lengths, variant.spread, seed);
        play(&server, &works, settings, seed, self.scenario.binds == Binding::KvCliff, on_step)
    }

    /// Runs a sweep on a seed, and returns the comparison of its answer with the truth (the best
    /// cap). `on_step` is called after each step of the sweep.
    pub(crate) fn ours(
        &self,
        settings: &SearchSettings,
        seed: u64,
        on_step: impl FnMut(&StepResult) + Send,
    ) -> Fallible<Verdict> {
        let played = self.sweep(settings, seed, on_step)?;
        let variant = self.scenario.variant(seed);
        let changed = self.scenario.changes_after(variant, seed).is_none_or(|after| played.served >= after);
        let curve = self.curve(variant, changed).ok_or("a curve is missing")?;
        Verdict::of(&self.scenario, &played, curve, seed)
    }

    /// Runs a peer on a seed, and returns the comparison of its answer with the truth about the
    /// server's final state.
    pub(crate) fn peer(&self, peer: Peer, seed: u64) -> Fallible<Verdict> {
        let variant = self.scenario.variant(seed);
        let server = self.scenario.server(variant, seed, State::Whole);
        let works = drawn_calls::draw(self.scenario.lengths, variant.spread, seed);
        let found = peer.play(&server, &works, seed)?;
        let curve = self.curve(variant, true).ok_or("a curve is missing")?;
        Verdict::of_peer(found, curve, seed)
    }
}
