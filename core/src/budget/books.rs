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

use super::bucket::after;

/// How fast what comes back is learned: the weight of the past falls to a third in so many seconds.
const MEMORY: f64 = 8.0;
/// Closer together than this, two answers say more about rounding than about a rate.
const APART: f64 = 0.25;
/// Surprises after which a rule may be replaced by one that foretells much better.
const SEEN: u32 = 6;
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
    /// Until when others are taken to be using it.
    others: Option<Instant>,
}

impl Books {
    pub(super) fn new(now: Instant) -> Self {
        Self { tracks: None, rule: 0, whole_at: now, top: 0.0, others: None }
    }

    /// Forgets it all: the limit is another.
    pub(super) fn clear(&mut self, now: Instant) {
        *self = Self { rule: self.rule, ..Self::new(now) };
    }

    /// Starts from another rule: of several only where it may be learned.
    pub(super) fn assume(&mut self, rule: usize) {
        self.rule = rule;
    }

    /// The rule that foretells best, where it is clear which.
    pub(super) fn learned(&self) -> Option<usize> {
        let tracks = self.tracks.as_ref()?;
        let error = |rule: usize| tracks.get(rule).map_or(f64::MAX, |both| both[0].error.min(both[1].error));
        let seen = tracks.iter().flatten().map(|track| track.seen).max().unwrap_or(0);
        let best = (0..4).min_by(|a, b| error(*a).total_cmp(&error(*b)))?;
        (seen >= SEEN && error(best) < 0.4 * error(self.rule)).then_some(best)
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
            };
            self.tracks = Some(std::array::from_fn(|rule| [track(said.sent, rule), track(said.heard, rule)]));
            return self.note(said, reset, limit, window, mine, now);
        };
        let mut fresh = false;
        for (rule, both) in tracks.iter_mut().enumerate() {
            for (track, (at, charged)) in both.iter_mut().zip([said.sent, said.heard]) {
                let charged = charged.get(rule).copied().unwrap_or(0);
                fresh |= track.learn(said.remaining, at, charged, rate, limit);
            }
        }
        self.tracks = Some(tracks);
        // An answer to a request that was sent before the last one's says nothing new.
        if fresh {
            self.note(said, reset, limit, window, mine, now);
        }
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
        let whole = now.checked_add(reset.unwrap_or(window).min(window)).unwrap_or(now);
        self.whole_at = whole;
        if limit - said.remaining > mine + 0.03 * limit {
            self.others = now.checked_add(window);
        }
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
        let left = self.track()?.left(now, charged.get(self.rule).copied().unwrap_or(0));
        Some(left.min(limit) - self.spare(now, limit))
    }

    /// When there is room for so much, if nothing else is charged: `now`, or later.
    pub(super) fn ready_at(&self, now: Instant, charged: &[i64; 4], limit: f64, cost: f64) -> Instant {
        let (Some(room), Some(track)) = (self.room(now, charged, limit), self.track()) else { return now };
        // One that is larger than what the provider ever showed goes when that is there.
        let missing = cost.min(self.most(now, limit)) - room;
        if missing <= 0.0 {
            now
        } else if track.back > 0.0 {
            after(now, missing / track.back).min(self.whole_at)
        } else {
            self.whole_at
        }
    }

    /// The largest room there has been: a call that is larger goes when that much is there.
    pub(super) fn most(&self, now: Instant, limit: f64) -> f64 {
        (0.9 * self.top - self.spare(now, limit)).max(1.0)
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
    fn left(&self, now: Instant, charged: i64) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.remaining - charged.wrapping_sub(self.charged) as f64 + self.back * passed
    }

    /// Takes the next figure; whether it is newer than the last.
    fn learn(&mut self, remaining: f64, at: Instant, charged: i64, rate: f64, limit: f64) -> bool {
        let Some(passed) = at.checked_duration_since(self.at).map(|passed| passed.as_secs_f64()) else {
            return false;
        };
        if passed < APART {
            // Too soon to learn from, but the smaller figure holds.
            let here = self.left(at, charged);
            if remaining < here {
                self.remaining = remaining;
                self.charged = charged;
                self.at = at;
            }
            return true;
        }
        let gone = charged.wrapping_sub(self.charged) as f64;
        let came = remaining - self.remaining + gone;
        let jumped = came > 1.5 * rate * passed + 0.05 * limit;
        if !jumped {
            let error = (self.left(at, charged) - remaining).abs();
            let weight = if self.seen < SEEN { 1.0 / f64::from(self.seen + 1) } else { 0.1 };
            self.error += weight * (error - self.error);
            self.seen = self.seen.saturating_add(1);
            let weight = 1.0 - (-passed / MEMORY).exp();
            // A budget that is nearly full takes nothing back, whatever its rate.
            let back = if remaining > 0.9 * limit { rate } else { (came / passed).clamp(-rate, rate) };
            self.back += weight * (back - self.back);
        }
        (self.remaining, self.at, self.charged) = (remaining, at, charged);
        true
    }
}
