//! A scenario with what is true of it, and what is played on it.

use std::collections::BTreeMap;

use tidegate_sweep::{Binding, SearchSettings, StepResult};

use super::judge::Verdict;
use super::mix;
use super::oracle::Curve;
use super::peers::Peer;
use super::play::{Played, play};
use super::scenarios::{Scenario, State, Variant};
use crate::Fallible;

/// A scenario and the curves of its variants, by their keys: several variants may come to the same.
pub(crate) struct Stage {
    pub(crate) scenario: Scenario,
    curves: BTreeMap<String, Curve>,
}

impl Stage {
    pub(crate) fn new(scenario: Scenario) -> Self {
        let mut curves = BTreeMap::new();
        for variant in scenario.variants() {
            for state in [State::Before, State::After] {
                let curve = Curve::of(&scenario, variant, state);
                // What does not change for good has one state in the long run.
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

    /// What was measured of a variant; a sweep that ended before the change is held against what was true until then.
    pub(crate) fn curve(&self, variant: Variant, changed: bool) -> Option<&Curve> {
        let state = if changed { State::After } else { State::Before };
        self.curves.get(&Curve::of(&self.scenario, variant, state).key)
    }

    /// Runs a sweep.
    pub(crate) fn sweep(
        &self,
        settings: &SearchSettings,
        seed: u64,
        told: impl FnMut(&StepResult) + Send,
    ) -> Fallible<Played> {
        let variant = self.scenario.variant(seed);
        let server = self.scenario.server(variant, seed, State::Whole);
        let works = mix::draw(self.scenario.lengths, variant.spread, seed);
        play(&server, &works, settings, seed, self.scenario.binds == Binding::KvCliff, told)
    }

    /// Runs a sweep, and compares its answer with what is true of the server.
    pub(crate) fn ours(
        &self,
        settings: &SearchSettings,
        seed: u64,
        told: impl FnMut(&StepResult) + Send,
    ) -> Fallible<Verdict> {
        let played = self.sweep(settings, seed, told)?;
        let variant = self.scenario.variant(seed);
        let changed = self.scenario.changes_after(variant, seed).is_none_or(|after| played.served >= after);
        let curve = self.curve(variant, changed).ok_or("a curve is missing")?;
        Verdict::of(&self.scenario, &played, curve, seed)
    }

    /// One of a peer's. It is held against the server as it is in the end: who does not look again cannot know.
    pub(crate) fn peer(&self, peer: Peer, seed: u64) -> Fallible<Verdict> {
        let variant = self.scenario.variant(seed);
        let server = self.scenario.server(variant, seed, State::Whole);
        let works = mix::draw(self.scenario.lengths, variant.spread, seed);
        let found = peer.play(&server, &works, seed)?;
        let curve = self.curve(variant, true).ok_or("a curve is missing")?;
        Verdict::of_peer(found, curve, seed)
    }
}
