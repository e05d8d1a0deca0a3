//! The controller: what each thing that happens to a call means for the limit.

use std::time::{Duration, Instant};

use super::bound::Bound;
use super::class::{CLASSES, Class, class_of, streams};
use super::evidence::{Evidence, Usual};
use super::flow::Flow;
use super::growth::Growth;
use super::load::{FEW, Load};
use super::percentile::{Percentile, Verdict};
use super::slots::Slots;
use super::{Cause, Decision, Ended, Kind, LimitView, Sample, Settings};
use crate::config::{Decrease, Detector};

/// The share of the time that is late which calls may spend in the queue before the upstream itself.
const AIM: f64 = 0.25;
/// A cut leaves this share at the least, and this much where nothing says how much the upstream serves.
const DEEPEST: f64 = 0.5;
const BLIND: f64 = 0.9;
/// The longest that a rate is taken over.
const LONGEST: Duration = Duration::from_secs(60);
/// A call that waits and is late already counts as this late: how late it will be is not known.
const OVERDUE: f64 = 1.5;
/// A 429 speaks of how many are in flight, if so many of those that were taken in at once of late were.
const NEAR_THE_MOST: f64 = 0.8;
/// Weight of a call in the share of late ones that is shown.
const SHOWN: f64 = 0.05;
/// Answers of fewer tokens say little of the time between two.
const FEW_TOKENS: u64 = 8;
/// What a call takes before its first token, in tokens: calls that do not stream are judged by token.
const HEAD_START: f64 = 32.0;
/// And are shown for an answer of so many.
const USUAL: f64 = 128.0;

/// See the module's documentation. Knows no clock: each method is told `now`.
#[derive(Debug)]
pub struct Limit {
    settings: Settings,
    slots: Slots,
    bound: Bound,
    growth: Growth,
    /// Of calls sent since the last trial began.
    trial: Evidence,
    load: Load,
    flow: Flow,
    classes: [Class; CLASSES],
    /// Classes with a call in their line, a bit each: only they can have one that is overdue.
    lines: u32,
    /// Of first tokens, of whole answers, and of the time between tokens.
    first_tokens: Evidence,
    answers: Evidence,
    pace: Evidence,
    /// What it takes between two tokens.
    tokens: Class,
    percentile: Option<Percentile>,
    /// The slots when the last run of 429s began: it cuts no deeper than a share of that.
    before_refusals: f64,
    judged: u64,
    late: f64,
    /// The last time that calls were found to be too many, whether the limit could be lowered for
    /// it or not.
    breach: Option<Instant>,
}

impl Limit {
    /// A limit that has seen nothing yet.
    pub fn new(settings: &Settings, now: Instant) -> Self {
        let adaptive = &settings.adaptive;
        let slots = Slots::new(adaptive.start, adaptive.min, settings.max);
        let bound = match adaptive.awaiting {
            Some(most) => Bound::Fixed(most.max(1)),
            None if adaptive.decrease == Decrease::Served && adaptive.detector == Detector::Exceedance => {
                Bound::found(slots.whole())
            }
            None => Bound::Off,
        };
        let percentile = match &adaptive.detector {
            Detector::Exceedance => None,
            Detector::Percentile(percentile) => Some(Percentile::new(percentile.clone(), now)),
        };
        Self {
            before_refusals: slots.value(),
            slots,
            bound,
            growth: Growth::Free,
            trial: Evidence::new(now),
            load: Load::default(),
            flow: Flow::default(),
            classes: Default::default(),
            lines: 0,
            first_tokens: Evidence::new(now),
            answers: Evidence::new(now),
            pace: Evidence::new(now),
            tokens: Class::default(),
            percentile,
            judged: 0,
            late: 0.0,
            breach: None,
            settings: settings.clone(),
        }
    }

    /// Slots in force.
    pub fn slots(&self) -> usize {
        self.slots.whole()
    }

    /// The most calls that may await their first token at once, of those that stream.
    pub fn awaiting(&self) -> usize {
        self.bound.most().min(self.settings.max)
    }

    /// Whether one more call may go.
    pub fn has_room(&self) -> bool {
        self.load.in_flight < self.slots() && self.load.awaiting < self.awaiting()
    }

    /// A call is sent.
    pub fn sent(&mut self, now: Instant, kind: Kind) -> Sample {
        let class = class_of(kind);
        self.load.sent(now, kind.streams);
        self.note(now);
        let at = self.load.in_flight;
        let number = self.is_due(class).then(|| self.enter(class, now, at));
        Sample {
            class,
            output: kind.output,
            number,
            awaits: kind.streams,
            judged: false,
            sent_at: now,
            at,
            first: None,
        }
    }

    /// Its first token came.
    pub fn first_token(&mut self, now: Instant, sample: &mut Sample) {
        if !sample.awaits {
            return;
        }
        self.note(now);
        sample.awaits = false;
        sample.first = Some(now);
        self.flow.token(now);
        self.load.first_token(now);
        self.load.taken(now, sample.at);
        let took = now.saturating_duration_since(sample.sent_at).as_secs_f64();
        self.answered(now, sample, sample.class, took);
    }

    /// It has begun to be answered, but its tokens cannot be seen: it is judged as one that does not stream, of an answer of so many tokens (0: not
    /// known).
    pub fn unseen(&mut self, now: Instant, sample: &mut Sample, output: u64) {
        self.note(now);
        if std::mem::take(&mut sample.awaits) {
            self.load.awaits_no_more();
        }
        self.leave(sample);
        sample.class = class_of(Kind { output, ..Kind::default() });
        sample.output = output;
    }

    /// It ended.
    pub fn ended(&mut self, now: Instant, mut sample: Sample, how: Ended) {
        self.note(now);
        if let Ended::Completed { output } = how {
            self.load.taken(now, sample.at);
            self.completed(now, &mut sample, output);
        }
        if sample.awaits {
            self.load.awaits_no_more();
        }
        self.leave(&mut sample);
        self.load.ended(sample.first.is_some());
        match how {
            Ended::Limited { by_rate: false } => self.refused(now, &sample),
            Ended::Overloaded => self.warned(now, &sample, Cause::Overloaded),
            Ended::TimedOut => self.warned(now, &sample, Cause::TimedOut),
            Ended::Completed { .. } | Ended::Cancelled | Ended::Limited { by_rate: true } | Ended::Failed => {
            }
        }
    }

    /// When to call [`Limit::tick`], if nothing else happens before.
    pub fn next_wake(&self) -> Option<Instant> {
        let tick = self.percentile.as_ref().filter(|_| self.load.in_flight > 0).map(Percentile::tick_at);
        self.in_line().filter_map(|class| self.overdue_at(class)).chain(tick).min()
    }

    /// Sees calls that have waited too long for their first token, and what else time brings.
    pub fn tick(&mut self, now: Instant) {
        for class in self.in_line() {
            while self.overdue_at(class).is_some_and(|at| at <= now) {
                let Some((sent_at, at)) = self.classes[class].line.take_oldest() else { break };
                self.close(class);
                self.judge(now, sent_at, at, class, OVERDUE);
            }
        }
        if self.percentile.as_ref().is_some_and(|percentile| percentile.tick_at() <= now) {
            self.tick_percentile(now);
        }
    }

    /// Returns the last time that calls were found to be too many, also if the limit is at its
    /// floor.
    pub fn last_breach(&self) -> Option<Instant> {
        self.breach
    }

    /// The last time that the slots moved.
    pub fn last_move(&self) -> Option<Decision> {
        self.slots.last()
    }

    /// What a person would want to know.
    pub fn view(&self, _now: Instant) -> LimitView {
        let evidence = self.first_tokens.share().max(self.answers.share()).max(self.pace.share());
        let moves = self.slots.moves();
        let count = |raises| {
            Cause::ALL.iter().zip(moves).filter(|(cause, _)| cause.raises() == raises).map(|(_, n)| n).sum()
        };
        LimitView {
            limit: self.slots(),
            awaiting_limit: self.awaiting(),
            awaiting: self.load.awaiting,
            slow_start: self.percentile.is_none() && matches!(self.growth, Growth::Free),
            objective: self.settings.objective,
            late: (self.judged > 0).then_some(self.late),
            evidence: self.percentile.as_ref().map_or(evidence, Percentile::evidence),
            cuts: count(false),
            raises: count(true),
            moves,
            decisions: self.slots.decisions(),
        }
    }

    /// An answer was whole. What it says depends on whether its first token was seen.
    fn completed(&mut self, now: Instant, sample: &mut Sample, output: u64) {
        if let Some(first) = sample.first {
            return self.paced(now, sample, first, output);
        }
        let took = now.saturating_duration_since(sample.sent_at).as_secs_f64();
        if streams(sample.class) {
            return self.answered(now, sample, sample.class, took);
        }
        let output = if output > 0 { output } else { sample.output };
        let class = class_of(Kind { output, ..Kind::default() });
        // Against an objective counts what it took; else what is long may take long.
        let by_token = output > 0 && self.settings.latency.is_none();
        let took = if by_token { took * USUAL / (output as f64 + HEAD_START) } else { took };
        self.answered(now, sample, class, took);
    }

    /// An answer took so long.
    fn answered(&mut self, now: Instant, sample: &mut Sample, class: usize, took: f64) {
        let objective = self.objective(class);
        let young = self.slots.is_uncut() && self.classes[class].is_young(objective);
        let calm = young || self.load.was_calm(sample.sent_at, sample.at);
        let strain = self.classes[class].strain(took, objective);
        let multiple = self.classes[class].threshold(objective).map(|threshold| took / threshold);
        self.classes[class].learn(took, calm);
        if let Some(strain) = strain.filter(|_| calm) {
            self.classes[class].learn_usual(strain > 1.0);
        }
        if calm && self.classes[class].finds_slow(objective) {
            // What was learned of levels that are too much was learned from it.
            self.growth = Growth::Free;
            self.bound.doubles_again();
        }
        if let (Some(percentile), Some(multiple)) = (&mut self.percentile, multiple) {
            percentile.saw(now, class, multiple);
        }
        // One that was overdue has been judged.
        let fresh = sample.number.is_none() || self.leave(sample);
        if fresh && !std::mem::replace(&mut sample.judged, true) {
            self.judge(now, sample.sent_at, sample.at, class, strain.unwrap_or(0.0));
        }
    }

    /// How long it took between two tokens, where that has an objective.
    fn paced(&mut self, now: Instant, sample: &Sample, first: Instant, output: u64) {
        let objective = self.settings.tpot;
        if objective.is_none() || output < FEW_TOKENS {
            return;
        }
        let took = now.saturating_duration_since(first).as_secs_f64() / (output - 1) as f64;
        let strain = self.tokens.strain(took, objective).unwrap_or(0.0);
        self.tokens.learn(took, self.load.was_calm(sample.sent_at, sample.at));
        if self.pace.concerns(sample.sent_at) && sample.at > FEW && self.pace.saw(strain, Usual::default()) {
            self.caught();
            let present = self.present(now);
            self.cut(now, BLIND * present, Cause::Slow);
        }
    }

    fn judge(&mut self, now: Instant, sent_at: Instant, at: usize, class: usize, strain: f64) {
        let late = strain > 1.0;
        self.judged += 1;
        self.late += SHOWN * (f64::from(u8::from(late)) - self.late);
        let streams = streams(class);
        let objective = self.objective(class);
        let of = &self.classes[class];
        let usual = Usual { late: of.usual(), strain: of.usual_strain(objective) };
        let evidence = if streams { &mut self.first_tokens } else { &mut self.answers };
        // Of one that was nearly alone, nobody is late because of us; and of its like nobody knows yet what they take.
        let unsaid = late && (at <= FEW || !self.classes[class].is_known());
        if self.percentile.is_some() || !evidence.concerns(sent_at) || unsaid {
            return;
        }
        let enough = evidence.saw(strain, usual);
        let has_room = evidence.has_room();
        let on_trial = self.growth.trial() > 0.0;
        let fresh = self.trial.concerns(sent_at);
        if on_trial && fresh {
            self.trial.saw(strain, usual);
        }
        // A trial need not make calls late to fail: it is enough that they lose their room.
        let failed = on_trial && fresh && (late || self.trial.judged() > 1 && !self.trial.has_room());
        if enough || failed {
            self.came_late(now, class);
        } else if !late && self.pace.share() < 0.5 {
            let free = streams && matches!(self.growth, Growth::Free);
            if has_room {
                self.came_in_time(now, sent_at, streams, fresh);
            } else if free && self.load.was_full(sent_at) {
                // The bound holds back who would wait; the slot is for the one that waits no more.
                self.slots.raise(now, 1.0, Cause::SlowStart, self.awaiting());
            }
        }
    }

    fn came_in_time(&mut self, now: Instant, sent_at: Instant, streams: bool, fresh: bool) {
        if streams && self.load.was_bound_full(sent_at) {
            self.bound.in_time(self.settings.max);
        }
        let cause = if let Growth::Free = self.growth { Cause::SlowStart } else { Cause::Headroom };
        let full = self.load.was_full(sent_at);
        let by = self.growth.in_time(self.slots.value(), full, fresh);
        if by > 0.0 {
            self.trial = Evidence::new(now);
            self.slots.raise(now, by, cause, self.awaiting());
        }
    }

    fn came_late(&mut self, now: Instant, class: usize) {
        let trial = self.growth.trial();
        if trial > 0.0 {
            self.caught();
            // Of a bold one, what is served already was not too much.
            let served = self.load.served_now().unwrap_or(0) as f64;
            let to = (self.slots.value() - trial).max(served.min(self.slots.value() - 1.0));
            return self.cut(now, to, Cause::Late);
        }
        let awaiting = self.awaiting();
        let to = match self.settings.adaptive.decrease {
            Decrease::Served => match self.load.served(now).filter(|_| streams(class)) {
                Some(served) => self.cut_to_served(now, class, served as f64),
                // The number of served calls is not known if their first tokens cannot be seen.
                None => {
                    self.caught();
                    BLIND * self.present(now)
                }
            },
            Decrease::Factor(factor) => self.less(factor * self.slots.value()),
            Decrease::Step(step) => self.less(self.slots.value() - step as f64),
        };
        self.cut_both(now, to, Cause::Late, awaiting);
    }

    /// A level was found that is too much.
    fn caught(&mut self) {
        let probes = self.settings.adaptive.decrease == Decrease::Served;
        self.growth = if probes { self.growth.caught() } else { Growth::Additive };
    }

    fn less(&mut self, to: f64) -> f64 {
        self.growth = Growth::Additive;
        to
    }

    /// Lowers the bound, and returns the slots to cut to: what the upstream is seen to serve, and
    /// as many more as can have their first token in time.
    fn cut_to_served(&mut self, now: Instant, class: usize, served: f64) -> f64 {
        let late = self.classes[class].threshold(self.objective(class)).unwrap_or(1.0);
        let base = self.classes[class].base(self.objective(class));
        // Of an upstream that had nothing to do the rate says nothing.
        let window = Duration::try_from_secs_f64(2.0 * late).unwrap_or(LONGEST);
        let busy = self.load.busy(now).max(window / 2).min(window);
        // By Little's law: those that are on their way, and those that may wait before it.
        let share = (base + AIM * (late - base)) * self.flow.rate(now, busy);
        let present = self.present(now);
        if self.bound.late(share) {
            // Then it is the slots that are too many.
            self.caught();
            return (served + share).clamp(DEEPEST * present, present);
        }
        (served + share + 1.0).max(DEEPEST * present).min(self.slots.value())
    }

    /// A 429, and not for a rate. It speaks of how many are in flight if it came while many were: what is in flight still was taken in.
    fn refused(&mut self, now: Instant, sample: &Sample) {
        let taken = self.load.taken_of_late(now);
        if taken == 0 || (sample.at as f64) < NEAR_THE_MOST * taken as f64 {
            return;
        }
        if self.first_tokens.concerns(sample.sent_at) {
            self.before_refusals = self.present(now);
            self.caught();
        }
        let to = (self.load.in_flight as f64).max(DEEPEST * self.before_refusals);
        if to < self.slots.value() {
            self.cut(now, to, Cause::Refused);
        }
    }

    fn warned(&mut self, now: Instant, sample: &Sample, cause: Cause) {
        let evidence = if streams(sample.class) { &mut self.first_tokens } else { &mut self.answers };
        // One that was overdue has been judged; and one that was nearly alone was not too much.
        let counts = evidence.concerns(sample.sent_at) && !sample.judged && sample.at > FEW;
        if counts && evidence.warned() {
            self.caught();
            let present = self.present(now);
            self.cut(now, BLIND * present, cause);
        }
    }

    fn tick_percentile(&mut self, now: Instant) {
        let Some(percentile) = &mut self.percentile else { return };
        match percentile.tick(now) {
            // In flight is demand: a queue that is kept short is empty most of the time.
            Verdict::Room if self.load.in_flight > 0 => {
                self.slots.raise(now, 1.0, Cause::Headroom, self.awaiting());
            }
            Verdict::Late(class) => self.came_late(now, class),
            Verdict::Room | Verdict::Steady => {}
        }
    }

    /// The slots that were used of late: what is cut is what was there. Where few were, nobody knows what more would do: a cut goes no deeper than the start.
    fn present(&mut self, now: Instant) -> f64 {
        let start = self.settings.adaptive.start as f64 / BLIND;
        self.slots.value().min(start.max(self.load.highest(now) as f64)).max(1.0)
    }

    fn cut(&mut self, now: Instant, to: f64, cause: Cause) {
        self.cut_both(now, to, cause, self.awaiting());
    }

    /// One cut for each epoch: what was sent before it is judged no more. `awaiting`: the bound
    /// before it was lowered, if it was.
    fn cut_both(&mut self, now: Instant, to: f64, cause: Cause, awaiting: usize) {
        self.breach = Some(now);
        self.first_tokens = Evidence::new(now);
        self.answers = Evidence::new(now);
        self.pace = Evidence::new(now);
        // What was turned away says itself how many are too many.
        let to = if cause == Cause::Refused { to } else { self.load.ground(to) };
        self.slots.cut(now, to, cause, [awaiting, self.awaiting()]);
    }

    fn objective(&self, class: usize) -> Option<Duration> {
        if streams(class) { self.settings.objective } else { self.settings.latency }
    }

    /// Whether calls of a class are late at a moment that is known before they end. Of those that do not stream the length decides, which is known at
    /// the end: but where an objective says.
    fn is_due(&self, class: usize) -> bool {
        streams(class) || self.settings.latency.is_some()
    }

    fn overdue_at(&self, class: usize) -> Option<Instant> {
        self.classes[class].overdue_at(self.objective(class))
    }

    fn note(&mut self, now: Instant) {
        self.load.note(now, self.slots.whole(), self.bound.most());
    }

    fn enter(&mut self, class: usize, now: Instant, at: usize) -> u64 {
        self.lines |= 1 << class;
        self.classes[class].line.push(now, at)
    }

    /// Takes a call out of its line. `false`: it was overdue before.
    fn leave(&mut self, sample: &mut Sample) -> bool {
        let Some(number) = sample.number.take() else { return false };
        let fresh = self.classes[sample.class].line.answered(number);
        sample.judged |= !fresh;
        self.close(sample.class);
        fresh
    }

    fn close(&mut self, class: usize) {
        if self.classes[class].line.oldest().is_none() {
            self.lines &= !(1 << class);
        }
    }

    fn in_line(&self) -> impl Iterator<Item = usize> + use<> {
        let lines = self.lines;
        (0..CLASSES).filter(move |class| lines & (1 << class) != 0)
    }
}
