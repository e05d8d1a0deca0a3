//! The controller.

use std::time::Instant;

use super::{Ended, Kind, LimitView, Sample, Settings};

/// See the module's documentation. Knows no clock: each method is told `now`.
#[derive(Debug)]
pub struct Limit {
    settings: Settings,
    slots: usize,
    in_flight: usize,
    awaiting: usize,
}

impl Limit {
    /// A limit that has seen nothing yet.
    pub fn new(settings: &Settings, _now: Instant) -> Self {
        let slots = settings.adaptive.start.clamp(settings.adaptive.min, settings.max);
        Self { settings: settings.clone(), slots, in_flight: 0, awaiting: 0 }
    }

    /// Slots in force.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The most calls that may await their first token at once.
    pub fn awaiting(&self) -> usize {
        self.settings.adaptive.awaiting.unwrap_or(self.slots)
    }

    /// A call is sent.
    pub fn sent(&mut self, now: Instant, kind: Kind) -> Sample {
        self.in_flight += 1;
        self.awaiting += 1;
        Sample { kind, sent_at: now, has_token: false }
    }

    /// Its first token came.
    pub fn first_token(&mut self, _now: Instant, sample: &mut Sample) {
        if !std::mem::replace(&mut sample.has_token, true) {
            self.awaiting -= 1;
        }
    }

    /// It turns out to be a call of another kind, of which no first token will be seen: from the moment it was sent, it is judged as one of that.
    /// [`Kind::default`]: nothing is known of it, nor will be.
    pub fn turned_out(&mut self, now: Instant, sample: &mut Sample, kind: Kind) {
        self.first_token(now, sample);
        sample.kind = kind;
    }

    /// It ended.
    pub fn ended(&mut self, _now: Instant, sample: Sample, _how: Ended) {
        self.in_flight -= 1;
        self.awaiting -= usize::from(!sample.has_token);
    }

    /// When to call [`Limit::tick`], if nothing else happens before.
    pub fn next_wake(&self) -> Option<Instant> {
        None
    }

    /// Sees calls that have waited too long for their first token, and whatever else time brings.
    pub fn tick(&mut self, _now: Instant) {}

    /// What a person would want to know.
    pub fn view(&self, _now: Instant) -> LimitView {
        LimitView {
            limit: self.slots,
            awaiting_limit: self.awaiting(),
            awaiting: self.awaiting,
            slow_start: true,
            objective: self.settings.objective,
            late: None,
            evidence: 0.0,
            cuts: 0,
            raises: 0,
            decisions: Vec::new(),
        }
    }
}
