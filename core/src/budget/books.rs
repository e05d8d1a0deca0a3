//! What the provider's own books show, as told in `remaining`.
//!
//! A `remaining` is old when it comes: other calls were charged meanwhile, other clients were served, and some of the budget came back. What
//! the provider has now is worked out from what it said, from what was charged since, and from what comes back a second. That last figure is
//! measured, between one answer and the next, and not taken from the limit: a bucket that fills steadily gives the whole rate, a window that
//! opens again by the clock gives nothing until it does, and other clients of the same key take theirs out of either. So one rule serves them
//! all (a Smith predictor: control by a model that what was measured late corrects).
//!
//! Two things about a provider are not known and are found out by which of the possibilities foretells its next figure best: by which rule it
//! counts a call, and whether the figure is of the moment when the request came or when it was answered.

use std::time::{Duration, Instant};

use super::bucket::{after, seconds};

/// How fast what comes back is learned: the weight of the past falls to a third in so many seconds.
const MEMORY: f64 = 8.0;
/// Closer together than this, two answers say more about rounding than about a rate.
const APART: f64 = 0.25;
/// Surprises after which a rule may be replaced by one that foretells much better.
const SEEN: u32 = 40;
/// The share of the limit from which on a budget is nearly full: there, what comes back is known to be the whole rate, and what is missing
/// is what was counted.
const FULL: f64 = 0.8;
/// How much smaller its error must be.
const BETTER: f64 = 0.7;
/// And it must have foretold better so many times more than not.
const RUNNING: u32 = 30;
/// The most that is asked for after refusals, each of which makes it four times as many; a quarter of it, each time that so long nothing was.
const NEEDED_MOST: u32 = 64 * RUNNING;
const FORGIVEN: Duration = Duration::from_secs(1_800);
/// How much smaller figures, one after the other, lower what is taken to be the most there can be.
const SHRINK: f64 = 0.02;
/// The share of the limit that is taken to come back where the resets mean something else.
const TRIED: f64 = 0.25;
/// What a request may take on its way.
const ON_THE_WAY: Duration = Duration::from_millis(250);
/// The first so many rules may be learned. Providers that count input only send no headers.
const LEARNED: usize = 3;
/// So many surprises bear a rule out; to replace one takes more.
const SHOWN: u32 = SEEN / 2;
/// Of those, the first that counts output when it is made.
const COUNTED_LATE: usize = 2;
/// The share of a limit that is left alone where every call is counted at arrival, beside a fifth of what is under way.
const UNSURE: f64 = 0.03;
/// Figures that are older say too little of now.
const RECENT: Duration = Duration::from_secs(30);
/// How much of the newest error goes into the mean.
const ERROR: f64 = 0.03;
/// The share of the limit that is left alone. The second, while others use the budget too: what they take is not seen until later.
const SPARE: f64 = 0.005;
const SPARE_AMONG_OTHERS: f64 = 0.05;

/// One answer about a budget, as it concerns the books of one rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    pub(super) remaining: f64,
    /// When the request was sent, and what had been charged by then, the request included, by each rule.
    pub(super) sent: (Instant, [i64; 4]),
    /// The same of the answer.
    pub(super) heard: (Instant, [i64; 4]),
}

/// The last figure, and what it makes of the next.
#[derive(Clone, Copy, Debug)]
struct Track {
    remaining: f64,
    at: Instant,
    charged: i64,
    /// What comes back a second: below zero where others take more than comes back.
    back: f64,
    /// The mean error of what was foretold.
    error: f64,
    seen: u32,
    /// The same of those that began with the budget nearly full.
    doubt: f64,
    full: u32,
    /// Of those that did not: by how much more came back than a steady rate brings, beside what was charged meanwhile. In the mean.
    surplus: f64,
    gone: f64,
    steady: u32,
}

/// What the provider has, as far as it said.
#[derive(Debug)]
pub(super) struct Books {
    /// By rule, and by whether the figure is of the sending or of the answer. Nothing is believed before the first answer.
    tracks: Option<[[Track; 2]; 4]>,
    rule: usize,
    /// The last moment at which the budget is whole again if nobody takes of it.
    whole_at: Instant,
    /// The largest figure seen.
    top: f64,
    /// What is taken to be all there can be: the limit at first, and in the end the largest of the last figures.
    most: f64,
    /// Until when others are taken to be using it.
    others: Option<Instant>,
    /// The least that is taken to come back a second.
    floor: f64,
    /// How often a reset was seen to make it whole, less how often not.
    kept: i8,
    /// The moment of the next one to be judged.
    promised: Option<Instant>,
    /// The last refusal: what was charged before it may not have been counted.
    refused: Option<Instant>,
    /// The rule that has foretold better so many times more than not, and how many it takes.
    better: (usize, u32),
    needed: u32,
    distrusted: Option<Instant>,
}

impl Books {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            tracks: None,
            rule: 0,
            whole_at: now,
            top: 0.0,
            most: 0.0,
            floor: f64::MIN,
            others: None,
            kept: 0,
            promised: None,
            refused: None,
            better: (0, 0),
            needed: RUNNING,
            distrusted: None,
        }
    }

    /// Forgets it all: the limit is another.
    pub(super) fn clear(&mut self, now: Instant) {
        *self = Self { rule: self.rule, needed: self.needed, distrusted: self.distrusted, ..Self::new(now) };
    }

    /// Starts from another rule: of several only where it may be learned.
    pub(super) fn assume(&mut self, rule: usize) {
        self.rule = rule;
    }

    /// The rule that foretells best, where it is clear which: much better, and for a good while.
    pub(super) fn learned(&mut self) -> Option<usize> {
        let tracks = self.tracks.as_ref()?;
        let doubt =
            |rule: usize| tracks.get(rule).map_or(f64::MAX, |[sent, heard]| sent.doubt.min(heard.doubt));
        let full = tracks.iter().flatten().map(|track| track.full).max().unwrap_or(0);
        let least = (0..LEARNED).map(doubt).fold(f64::MAX, f64::min);
        // The first that is about as good: the dearest stands first.
        let best = (0..LEARNED).find(|rule| doubt(*rule) <= 1.2 * least)?;
        if full < SEEN || doubt(best) >= BETTER * doubt(self.rule) {
            self.better.1 = self.better.1.saturating_sub(1);
            return None;
        }
        let times = if self.better.0 == best { self.better.1 + 1 } else { 1 };
        self.better = (best, times);
        (times >= self.needed).then_some(best)
    }

    /// The rule that was learned was followed by a refusal: the next needs more to show for it.
    pub(super) fn distrust(&mut self, now: Instant) {
        self.needed = self.needed.saturating_mul(4).min(NEEDED_MOST);
        self.better.1 = 0;
        self.distrusted = Some(now);
    }

    /// Nothing was refused: what distrust asks for more falls with time.
    pub(super) fn trust(&mut self, now: Instant) {
        if self.distrusted.is_some_and(|at| now.saturating_duration_since(at) >= FORGIVEN) {
            self.needed = (self.needed / 4).max(RUNNING);
            self.distrusted = (self.needed > RUNNING).then_some(now);
        }
    }

    /// A call was refused, and may not have been counted.
    pub(super) fn refused(&mut self, now: Instant) {
        self.refused = Some(now);
    }

    /// Takes an answer. `rate` and `limit` are the budget's; `mine` what we charged in the last window.
    pub(super) fn hear(
        &mut self,
        said: &Said,
        reset: Option<Duration>,
        rate: f64,
        limit: f64,
        window: Duration,
        mine: f64,
    ) {
        let now = said.heard.0;
        let Some(mut tracks) = self.tracks else {
            let track = |(at, charged): (Instant, [i64; 4]), rule: usize| Track {
                remaining: said.remaining,
                at,
                charged: charged.get(rule).copied().unwrap_or(0),
                back: rate,
                error: 0.0,
                seen: 0,
                doubt: 0.0,
                full: 0,
                surplus: 0.0,
                gone: 0.0,
                steady: 0,
            };
            self.tracks = Some(std::array::from_fn(|rule| [track(said.sent, rule), track(said.heard, rule)]));
            return self.note(said, reset, limit, window, mine, now);
        };
        let (mut fresh, mut jumped, before) =
            (false, false, self.track().map_or(limit, |track| track.remaining));
        for (rule, both) in tracks.iter_mut().enumerate() {
            for (track, (at, charged)) in both.iter_mut().zip([said.sent, said.heard]) {
                let charged = charged.get(rule).copied().unwrap_or(0);
                let clean = self.refused.is_none_or(|refused| refused < track.at);
                let learnt = track.learn(said.remaining, at, charged, rate, limit, clean);
                fresh |= learnt.is_some();
                jumped |= learnt == Some(true);
            }
        }
        self.tracks = Some(tracks);
        self.judge(said.sent.0, jumped, limit - before > 0.1 * limit);
        // An answer to a request that was sent before the last one's says nothing new.
        if fresh {
            self.note(said, reset, limit, window, mine, now);
        }
    }

    /// When it is whole again at the latest, if nobody takes of it.
    pub(super) fn whole_at(&self) -> Instant {
        self.whole_at
    }

    fn note(
        &mut self,
        said: &Said,
        reset: Option<Duration>,
        limit: f64,
        window: Duration,
        mine: f64,
        now: Instant,
    ) {
        self.top = self.top.max(said.remaining);
        let most = if self.most > 0.0 { self.most } else { limit };
        self.most = said.remaining.max(most + SHRINK * (said.remaining - most));
        // At the limit's own rate, what is used comes back within this.
        let steady = seconds((limit - said.remaining) / limit * window.as_secs_f64());
        let reset = reset.map_or(window, |reset| if self.kept < 0 { reset.max(steady) } else { reset });
        // A moment late costs little, a moment early is a refusal.
        // Where nothing says when it is whole again, and nothing is under way that would bring an answer, it must be tried.
        self.floor = if self.kept < 0 { TRIED * limit / window.as_secs_f64() } else { f64::MIN };
        let from = if self.is_of_sending() { said.sent.0 } else { now } + ON_THE_WAY;
        self.whole_at = from.checked_add(reset.min(window)).unwrap_or(from);
        self.promised = self.promised.or(Some(self.whole_at));
        if limit - said.remaining > mine + 0.03 * limit {
            self.others = now.checked_add(window);
        }
    }

    /// Whether the budget was whole again when the reset said so. Where little is used nothing shows.
    fn judge(&mut self, sent: Instant, jumped: bool, shows: bool) {
        let Some(promised) = self.promised else { return };
        if jumped || sent.saturating_duration_since(promised) > ON_THE_WAY {
            self.promised = None;
            if jumped || shows {
                self.kept = (self.kept + if jumped { 1 } else { -1 }).clamp(-4, 4);
            }
        }
    }

    /// Whether the figures are known to be of the moment when the request came.
    fn is_of_sending(&self) -> bool {
        let tracks = self.tracks.as_ref().and_then(|tracks| tracks.get(self.rule));
        tracks.is_some_and(|[sent, heard]| sent.seen >= SEEN && sent.error < 0.7 * heard.error)
    }

    /// A call that was charged at `then` never came to the provider: answers to later ones did not count it.
    pub(super) fn forget(&mut self, then: Instant, cost: &[i64; 4]) {
        for (both, cost) in self.tracks.iter_mut().flatten().zip(cost) {
            for track in both.iter_mut().filter(|track| track.at >= then) {
                track.charged = track.charged.wrapping_sub(*cost);
            }
        }
    }

    /// What may be taken, of what the provider is believed to have; `None` where nothing is known, or it is whole again.
    pub(super) fn room(&self, now: Instant, charged: &[i64; 4], limit: f64) -> Option<f64> {
        if now >= self.whole_at {
            return None;
        }
        let track = self.track()?;
        let back = track.back.max(self.floor);
        let left = track.left(now, charged.get(self.rule).copied().unwrap_or(0), back);
        Some(left.min(limit) - self.spare(now, limit))
    }

    /// How much of the limit is better left to what the figures do not show: what is under way may turn out dearer. `None`: nobody can tell. Nothing recent is known,
    /// others use it too, or output is counted as it is made, or may be: then what is under way was not counted yet.
    pub(super) fn unsure(&self, now: Instant, charged: &[i64; 4], limit: f64, exact: bool) -> Option<f64> {
        let track = self.track()?;
        if now.saturating_duration_since(track.at) > RECENT {
            return None;
        }
        if self.others.is_some_and(|until| now < until) || track.is_shared() {
            return None;
        }
        if exact {
            return Some(0.0);
        }
        let under_way = charged.get(self.rule).copied().unwrap_or(0).wrapping_sub(track.charged);
        let sure = self.rule < COUNTED_LATE && self.is_shown();
        sure.then(|| UNSURE * limit + 0.2 * under_way.max(0) as f64)
    }

    /// Whether figures have borne out the rule that is assumed: with it what comes back is the rate, or no other foretells clearly better.
    fn is_shown(&self) -> bool {
        let Some(tracks) = self.tracks.as_ref() else { return false };
        if self.track().is_some_and(|track| track.steady >= SHOWN && track.surplus.abs() <= 0.1 * track.gone)
        {
            return true;
        }
        let doubts = || tracks.iter().take(LEARNED).map(|[sent, heard]| sent.doubt.min(heard.doubt));
        let full = tracks.iter().flatten().map(|track| track.full).max().unwrap_or(0);
        let least = doubts().fold(f64::MAX, f64::min);
        full >= SHOWN && doubts().nth(self.rule).is_some_and(|doubt| doubt <= 1.2 * least)
    }

    /// When there is room for so much, if nothing else is charged: `now`, or later.
    pub(super) fn ready_at(&self, now: Instant, charged: &[i64; 4], limit: f64, cost: f64) -> Instant {
        let (Some(room), Some(track)) = (self.room(now, charged, limit), self.track()) else { return now };
        // One that is larger than what the provider ever showed goes when that is there.
        let missing = cost.min(self.most(now, limit)) - room;
        if missing <= 0.0 {
            now
        } else if track.back.max(self.floor) > 0.0 {
            after(now, missing / track.back.max(self.floor)).min(self.whole_at)
        } else {
            self.whole_at
        }
    }

    /// The largest room there has been: a call that is larger goes when that much is there.
    pub(super) fn most(&self, now: Instant, limit: f64) -> f64 {
        (0.9 * self.most - self.spare(now, limit)).max(1.0)
    }

    fn spare(&self, now: Instant, limit: f64) -> f64 {
        let among_others = self.others.is_some_and(|until| now < until);
        let spare = if among_others { SPARE_AMONG_OTHERS } else { SPARE };
        (spare * limit).min(0.25 * self.top)
    }

    fn track(&self) -> Option<&Track> {
        let [sent, heard] = self.tracks.as_ref()?.get(self.rule)?;
        // The sending's is the more careful of the two: what was charged since is taken off.
        Some(if heard.seen >= SEEN && heard.error < 0.7 * sent.error { heard } else { sent })
    }
}

impl Track {
    /// Whether clearly less comes back than what a steady rate brings: somebody else takes it, or calls cost more than they are charged.
    fn is_shared(&self) -> bool {
        self.steady >= SHOWN && self.surplus < -0.1 * self.gone
    }

    fn left(&self, now: Instant, charged: i64, back: f64) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.remaining - charged.wrapping_sub(self.charged) as f64 + back * passed
    }

    /// Takes the next figure. `None`: it is older than the last; else, whether the budget has opened again meanwhile.
    fn learn(
        &mut self,
        remaining: f64,
        at: Instant,
        charged: i64,
        rate: f64,
        limit: f64,
        clean: bool,
    ) -> Option<bool> {
        let passed = at.checked_duration_since(self.at)?.as_secs_f64();
        if passed < APART {
            // Too soon to learn from, but a figure that is clearly smaller holds.
            if remaining < self.left(at, charged, self.back) - 0.01 * limit {
                self.remaining = remaining;
                self.charged = charged;
                self.at = at;
            }
            return Some(false);
        }
        let gone = charged.wrapping_sub(self.charged) as f64;
        let came = remaining - self.remaining + gone;
        let jumped = came > 1.5 * rate * passed + 0.05 * limit;
        if !jumped && clean {
            // What came back before it was full, and then what was taken.
            let foretold = (self.remaining + self.back * passed).min(limit) - gone;
            let error = (foretold - remaining).abs();
            let weight = (1.0 / f64::from(self.seen.saturating_add(1))).max(ERROR);
            self.error += weight * (error - self.error);
            self.seen = self.seen.saturating_add(1);
            if self.remaining > FULL * limit {
                let weight = (1.0 / f64::from(self.full.saturating_add(1))).max(ERROR);
                self.doubt += weight * (error - self.doubt);
                self.full = self.full.saturating_add(1);
            }
            if self.remaining.max(remaining) < 0.9 * limit && remaining > 0.0 {
                let weight = (1.0 / f64::from(self.steady.saturating_add(1))).max(ERROR);
                self.surplus += weight * (came - rate * passed - self.surplus);
                self.gone += weight * (gone - self.gone);
                self.steady = self.steady.saturating_add(1);
            }
            let weight = 1.0 - (-passed / MEMORY).exp();
            // A budget that is nearly full takes nothing back, whatever its rate.
            let back = if remaining > 0.9 * limit { rate } else { (came / passed).clamp(-rate, rate) };
            self.back += weight * (back - self.back);
        }
        (self.remaining, self.at, self.charged) = (remaining, at, charged);
        Some(jumped)
    }
}
