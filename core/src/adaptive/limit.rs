//! The controller.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::class::{CLASSES, Class, class_of};
use super::evidence::Evidence;
use super::flow::Flow;
use super::growth::Growth;
use super::{Cause, Decision, Ended, Kind, LimitView, Sample, Settings};

/// Below this strain there is room; above it nothing grows.
const ROOM: f64 = 0.6;
/// The share of the threshold that calls may wait upstream.
const AIM: f64 = 0.5;
/// The least and the most that a cut leaves.
const DEEPEST: f64 = 0.5;
const SHALLOWEST: f64 = 0.95;
/// What a cut leaves where nothing says how much the upstream serves.
const BLIND: f64 = 0.9;
/// Decisions that are remembered.
const KEPT: usize = 32;

/// See the module's documentation. Knows no clock: each method is told `now`.
#[derive(Debug)]
pub struct Limit {
    settings: Settings,
    slots: f64,
    in_flight: usize,
    /// The most calls that may await their first token; and those that do.
    bound: f64,
    awaiting: usize,
    /// Whether the bound still doubles.
    bound_doubles: bool,
    classes: [Class; CLASSES],
    flow: Flow,
    /// Of calls that stream: what cuts the bound, and the slots where that is not enough.
    streams: Evidence,
    /// Of those that do not: what cuts the slots.
    whole: Evidence,
    growth: Growth,
    /// When the slots were last all taken, and the bound.
    peak: f64,
    served: Peak,
    full: Option<Instant>,
    bound_full: Option<Instant>,
    cuts: u64,
    raises: u64,
    judged: u64,
    late: f64,
    decisions: VecDeque<Decision>,
}

impl Limit {
    /// A limit that has seen nothing yet.
    pub fn new(settings: &Settings, now: Instant) -> Self {
        let start = settings.adaptive.start.clamp(settings.adaptive.min, settings.max) as f64;
        Self {
            settings: settings.clone(),
            slots: start,
            in_flight: 0,
            bound: settings.adaptive.awaiting.map_or(start, |bound| bound as f64),
            awaiting: 0,
            bound_doubles: true,
            classes: Default::default(),
            flow: Flow::default(),
            streams: Evidence::new(now),
            whole: Evidence::new(now),
            growth: Growth::Free,
            peak: 0.0,
            served: Peak::default(),
            full: None,
            bound_full: None,
            cuts: 0,
            raises: 0,
            judged: 0,
            late: 0.0,
            decisions: VecDeque::new(),
        }
    }

    /// Slots in force.
    pub fn slots(&self) -> usize {
        self.slots as usize
    }

    /// The most calls that may await their first token at once: what was configured, or what was found.
    pub fn awaiting(&self) -> usize {
        self.settings.adaptive.awaiting.unwrap_or(self.bound as usize)
    }

    /// The last move, if it has moved at all.
    pub fn last_move(&self) -> Option<Decision> {
        self.decisions.back().copied()
    }

    /// Whether one more call may go.
    pub fn has_room(&self) -> bool {
        self.in_flight < self.slots() && self.awaiting < self.awaiting()
    }

    /// A call is sent.
    pub fn sent(&mut self, now: Instant, kind: Kind) -> Sample {
        let class = class_of(kind);
        self.in_flight += 1;
        self.awaiting += usize::from(kind.streams);
        if self.in_flight >= self.slots() {
            self.full = Some(now);
        }
        if self.awaiting >= self.awaiting() {
            self.bound_full = Some(now);
        }
        let number = self.classes[class].push(now);
        Sample {
            class,
            number,
            streams: kind.streams,
            sent_at: now,
            at: self.in_flight,
            has_token: false,
            first: None,
        }
    }

    /// Its first token came.
    pub fn first_token(&mut self, now: Instant, sample: &mut Sample) {
        if std::mem::replace(&mut sample.has_token, true) || !sample.streams {
            return;
        }
        sample.first = Some(now);
        self.flow.token(now);
        self.answered(now, sample);
        self.note_full(now);
        self.awaiting -= 1;
        self.served.saw(now, self.in_flight - self.awaiting);
        self.peak = self.peak.max(self.in_flight as f64) * 0.9995;
    }

    /// Its answer has begun and does not stream after all, or not so that it can be read: from the moment it was sent, it is judged as a call that
    /// does not, of which so many tokens are expected (0: not known).
    pub fn unseen(&mut self, now: Instant, sample: &mut Sample, output: u64) {
        self.note_full(now);
        self.awaiting -= usize::from(sample.streams && !sample.has_token);
        let _ = self.classes[sample.class].answered(sample.number);
        sample.class = class_of(Kind { input: 0, output, streams: false });
        sample.number = self.classes[sample.class].push(sample.sent_at);
        sample.streams = false;
    }

    /// It ended.
    pub fn ended(&mut self, now: Instant, sample: Sample, how: Ended) {
        self.note_full(now);
        if !sample.has_token {
            match how {
                Ended::Completed { .. } => self.answered(now, &sample),
                _ => _ = self.classes[sample.class].answered(sample.number),
            }
            self.awaiting -= usize::from(sample.streams);
        }
        self.in_flight -= 1;
        match how {
            Ended::Limited { by_rate: false } => self.refused(now, &sample),
            Ended::Overloaded => self.warned(now, &sample, Cause::Overloaded),
            Ended::TimedOut => self.warned(now, &sample, Cause::TimedOut),
            _ => {}
        }
    }

    /// When to call [`Limit::tick`], if nothing else happens before.
    pub fn next_wake(&self) -> Option<Instant> {
        self.classes.iter().filter_map(|class| self.overdue_at(class)).min()
    }

    /// Sees calls that have waited too long for their first token.
    pub fn tick(&mut self, now: Instant) {
        for index in 0..CLASSES {
            while let Some(class) = self.classes.get(index)
                && self.overdue_at(class).is_some_and(|at| at <= now)
            {
                let Some(sent_at) = class.oldest() else { break };
                self.classes[index].overdue();
                self.judge(now, sent_at, index, 1.5);
            }
        }
    }

    fn overdue_at(&self, class: &Class) -> Option<Instant> {
        let streams = true;
        let threshold = class.threshold(self.objective(streams))?;
        Some(class.oldest()? + Duration::from_secs_f64(threshold))
    }

    fn objective(&self, streams: bool) -> Option<Duration> {
        if streams { self.settings.objective } else { self.settings.latency }
    }

    /// Where the slots are, or the bound is, all taken just before one comes free.
    fn note_full(&mut self, now: Instant) {
        if self.in_flight >= self.slots() {
            self.full = Some(now);
        }
        if self.awaiting >= self.awaiting() {
            self.bound_full = Some(now);
        }
    }

    fn answered(&mut self, now: Instant, sample: &Sample) {
        let took = now.saturating_duration_since(sample.sent_at).as_secs_f64();
        let calm = sample.at as f64 <= (self.peak / 4.0).max(2.0);
        let objective = self.objective(sample.streams);
        let class = &mut self.classes[sample.class];
        let strain = class.threshold(objective).map(|threshold| class.strain(took, threshold));
        let fresh = class.answered(sample.number);
        class.learn(took, calm);
        if fresh {
            self.judge(now, sample.sent_at, sample.class, strain.unwrap_or(0.0));
        }
    }

    fn judge(&mut self, now: Instant, sent_at: Instant, class: usize, strain: f64) {
        self.judged += 1;
        self.late += 0.05 * (f64::from(u8::from(strain > 1.0)) - self.late);
        let streams = class < 10;
        let evidence = if streams { &mut self.streams } else { &mut self.whole };
        if !evidence.concerns(sent_at) {
            return;
        }
        let enough = evidence.saw(strain);
        if enough || (strain > 1.0 && self.growth.trial() > 0.0) {
            return self.late(now, streams, class);
        }
        if strain > 1.0 || evidence.strain() > ROOM {
            return;
        }
        if streams && self.bound_full.is_some_and(|at| at >= sent_at) {
            self.bound += if self.bound_doubles { 1.0 } else { 1.0 / self.bound };
            self.bound = self.bound.min(self.settings.max as f64);
        }
        if self.full.is_some_and(|at| at >= sent_at) {
            let by = self.growth.in_time(self.slots);
            self.set(
                now,
                self.slots + by,
                if matches!(self.growth, Growth::Free) { Cause::SlowStart } else { Cause::Headroom },
            );
        }
    }

    fn late(&mut self, now: Instant, streams: bool, class: usize) {
        let trial = self.growth.trial();
        let threshold = self.classes[class].threshold(self.objective(streams)).unwrap_or(1.0);
        let to = if trial > 0.0 {
            self.growth = self.growth.caught();
            self.slots - trial
        } else if streams {
            let rate = self.flow.rate(now, Duration::from_secs_f64(2.0 * threshold));
            let share = AIM * threshold * rate;
            let served = self.served.most(now).max(self.in_flight - self.awaiting) as f64;
            let before = self.bound;
            self.bound = share.clamp(1.0, (0.7 * self.bound).max(1.0));
            self.bound_doubles = false;
            if share < 1.0 || before < 1.5 {
                self.growth = self.growth.caught();
                let present = self.slots.min(self.in_flight as f64);
                (served + share).clamp(DEEPEST * present, present.max(1.0))
            } else {
                self.slots.min(served + share + 1.0).max(DEEPEST * self.slots.min(self.in_flight as f64))
            }
        } else {
            self.growth = self.growth.caught();
            BLIND * self.slots
        };
        self.cut(now, to, Cause::Late);
    }

    fn refused(&mut self, now: Instant, sample: &Sample) {
        // What is still in flight was taken.
        let _ = sample;
        if (self.in_flight as f64) < self.slots {
            self.growth = self.growth.caught();
            let to = (self.in_flight as f64).max(1.0);
            self.cut(now, to, Cause::Refused);
        }
    }

    fn warned(&mut self, now: Instant, sample: &Sample, cause: Cause) {
        if self.streams.concerns(sample.sent_at) && self.streams.warned() {
            self.growth = self.growth.caught();
            self.cut(now, BLIND * self.slots.min(self.in_flight as f64 + 1.0), cause);
        }
    }

    fn cut(&mut self, now: Instant, to: f64, cause: Cause) {
        self.cuts += 1;
        self.streams = Evidence::new(now);
        self.whole = Evidence::new(now);
        self.set(now, to, cause);
    }

    fn set(&mut self, now: Instant, to: f64, cause: Cause) {
        let (least, most) = (self.settings.adaptive.min as f64, self.settings.max as f64);
        let from = self.slots();
        self.slots = to.clamp(least, most);
        if self.slots() == from {
            return;
        }
        self.raises += u64::from(self.slots() > from);
        if self.decisions.len() == KEPT {
            self.decisions.pop_front();
        }
        self.decisions.push_back(Decision { at: now, from, to: self.slots(), cause });
    }

    /// What a person would want to know.
    pub fn view(&self, _now: Instant) -> LimitView {
        LimitView {
            limit: self.slots(),
            awaiting_limit: self.awaiting(),
            awaiting: self.awaiting,
            slow_start: matches!(self.growth, Growth::Free),
            objective: self.settings.objective,
            late: (self.judged > 0).then_some(self.late),
            evidence: self.streams.share().max(self.whole.share()),
            cuts: self.cuts,
            raises: self.raises,
            decisions: self.decisions.iter().copied().collect(),
        }
    }
}

/// The most that was seen within the last five to ten seconds.
#[derive(Debug, Default)]
struct Peak {
    since: Option<Instant>,
    before: usize,
    now: usize,
}

impl Peak {
    fn saw(&mut self, now: Instant, value: usize) {
        self.turn(now);
        self.now = self.now.max(value);
    }
    fn most(&mut self, now: Instant) -> usize {
        self.turn(now);
        self.now.max(self.before)
    }
    fn turn(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let age = now.saturating_duration_since(since);
        if age >= Duration::from_secs(5) {
            self.before = if age < Duration::from_secs(10) { self.now } else { 0 };
            self.now = 0;
            self.since = Some(now);
        }
    }
}
