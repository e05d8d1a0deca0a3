//! One budget: a limit over a window, and everything that keeps us inside it.
//!
//! Three bounds, and a call fits if it fits in all:
//!
//! 1. The *pace* smooths: a little less than the limit's rate, with a burst of a few seconds, so that a minute's quota does not go out at
//!    once where the provider enforces slices of a minute. Requests on `governor`, tokens on a [`Bucket`].
//! 2. The *ledger* bounds what is charged in any window, for providers that count by the clock or over the last minute.
//! 3. The *books* say what the provider itself has left, as its headers tell, other clients' use included.
//!
//! The first two need no headers. For windows below an hour, each is loose enough never to bind where the provider is of another kind. A day's
//! are not: a day that begins at midnight, of which all was used before, is whole again long before our own last 24 hours are. So there the
//! books alone count as long as they are known, and when a reset that was stated has passed, the other two begin anew.
//!
//! Where the provider is seen to be a bucket that fills steadily ([`Hint::is_bucket`](super::window::Hint::is_bucket)), its books are all there is to keep: what it saved up
//! while nobody called is there to be used, so the ledger, which would keep that back, stands aside, and the pace is twice the rate for as long as there is more
//! than can be unsure. A refusal ends the haste for a minute; one that the books do not explain ends all of that for [`CALM`].
//!
//! A 429 halves the burst, down to [`SHORTEST`]: it costs nothing but smoothness, and slices of a minute are what headers do not show. Where
//! the burst is down and the headers do not explain the refusal, or there are none, the limit itself must be wrong or others use it too: it is
//! cut. Both grow back when nothing is refused: the limit within minutes or an hour, the burst more patiently, since a short one costs little
//! and a long one where it does not fit costs a refusal.
//!
//! What a cut has shown is kept for each limit that was announced of late, and for that limit alone:
//! the small backend of a gateway may refuse a rate that the large one serves. A limit that was not
//! announced of late is used whole.

use std::time::{Duration, Instant};

use super::books::{Books, Said};
use super::bucket::Bucket;
use super::cells::Cells;
use super::ledger::Ledger;
use super::rates::Kind;
use crate::wire::rate::Window;

/// How much of the limit's rate is used: the rest pays for clocks that run apart and for calls that bunch on their way.
const PACE: f64 = 0.985;
/// How much of the limit is charged in a window: tokens are estimates.
const WINDOW: f64 = 0.99;
/// The shortest burst.
const SHORTEST: Duration = Duration::from_millis(250);
/// From this on a window is not smoothed: a day's quota is there to be used when the day's work is.
const LONG: Duration = Duration::from_secs(3_600);
/// What is left of a limit after a 429 that nothing explains, how it grows back, and how often.
const CUT: f64 = 0.9;
const SMALL_CUT: f64 = 0.98;
const EASE_EVERY: Duration = Duration::from_secs(60);
/// By what it grows until it is back where it was cut, and from then on. Slowly at first: where the cut was right, each time it is back is a
/// refusal of all that is under way. Once it is past that and nothing was refused, what it was cut for is over: from a hundredth
/// it is whole again within the hour.
const EASE: f64 = 1.01;
const EASE_MORE: f64 = 1.1;
const TESTED: Duration = Duration::from_secs(11 * 60);
/// How long nothing must have been refused for the burst to double. Twice as long each time that was a mistake, up to a day, and as at first
/// once it has held for four times as long.
const CALM: Duration = Duration::from_secs(15 * 60);
const CALM_MOST: Duration = Duration::from_secs(86_400);
/// How many times the rate is taken of a bucket that has saved up.
const HASTE: f64 = 2.0;
/// How much of the limit there must be, beyond what is unsure, to begin with that.
const SAVED: f64 = 0.02;
/// How long there is no haste after a refusal that the books explain.
const CHASTENED: Duration = Duration::from_secs(60);
/// A limit that changes by less than this is the same one, adapting: what is known of it stays known.
const DRIFT: f64 = 0.05;
/// How many limits are remembered besides the one in force, and for how long: a gateway in front of
/// several backends announces now the limit of one, now that of another. A share that was cut is
/// whole again by then.
const REMEMBERED: usize = 16;
const REMEMBERED_FOR: Duration = Duration::from_secs(3_600);

/// A limit that was in force, with the share of it that was used, and until when.
#[derive(Clone, Copy, Debug)]
struct Former {
    limit: u64,
    share: f64,
    until: Instant,
}

#[derive(Debug)]
enum Pace {
    Requests(Cells),
    Tokens(Bucket),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Quota {
    pub(super) kind: Kind,
    pub(super) limit: u64,
    pub(super) window: Duration,
    pub(super) configured: Option<u64>,
    pub(super) from_headers: bool,
    /// A higher limit that was said once, and over what.
    higher: Option<(u64, Duration)>,
    burst: Duration,
    /// What it was before refusals shortened it.
    whole_burst: Duration,
    /// How long to wait before it is made longer, and whether it was since that was last settled.
    calm: Duration,
    lengthened: bool,
    /// The last cut, or the last time that the burst was made longer.
    quiet_since: Instant,
    /// The share of the limit that is used, where 429s have shown that all of it is too much.
    share: f64,
    /// The limits that were in force of late, the last one last.
    former: Vec<Former>,
    cut_at: Option<Instant>,
    eased_at: Instant,
    pace: Pace,
    ledger: Ledger,
    pub(super) books: Books,
    heard: bool,
    /// Whether the provider is a bucket that fills steadily.
    is_bucket: bool,
    hasty: bool,
    /// Until when there is no haste, and until when it is taken for no bucket, since it has refused.
    no_haste: Option<Instant>,
    no_bucket: Option<Instant>,
    /// When a long window begins anew, as the provider said last.
    renews_at: Option<Instant>,
    /// Charges from before it was there, or began anew, are none of its business.
    born: Instant,
}

impl Quota {
    pub(super) fn new(kind: Kind, limit: u64, window: Duration, burst: Duration, now: Instant) -> Self {
        let limit = limit.max(1);
        let burst = if window >= LONG { window } else { burst.clamp(SHORTEST.min(window), window) };
        let rate = PACE * limit as f64 / window.as_secs_f64();
        let pace = Self::full(kind, rate, burst, now);
        Self {
            kind,
            limit,
            window,
            configured: None,
            from_headers: false,
            higher: None,
            burst,
            whole_burst: burst,
            calm: CALM,
            lengthened: false,
            quiet_since: now,
            share: 1.0,
            former: Vec::new(),
            cut_at: None,
            eased_at: now,
            pace,
            ledger: Ledger::new(window, now),
            books: Books::new(now),
            heard: false,
            is_bucket: false,
            hasty: false,
            no_haste: None,
            no_bucket: None,
            renews_at: None,
            born: now,
        }
    }

    /// The largest cost that fits now.
    pub(super) fn room(&mut self, now: Instant, charged: &[i64; 4]) -> u64 {
        self.renew(now);
        self.hurry(now, charged);
        let limit = self.limit as f64;
        let books = self.books.room(now, charged, limit);
        let known = match books {
            Some(room) if room < self.books.most(now, limit) => room as u64,
            _ => u64::MAX,
        };
        if self.window >= LONG && books.is_some() {
            return known;
        }
        let pace = match &mut self.pace {
            Pace::Requests(cells) => u64::from(cells.open(now)),
            Pace::Tokens(bucket) => bucket.room(now),
        };
        let sum = self.ledger.sum(now);
        let ledger =
            if sum == 0 || self.follows_books(now) { u64::MAX } else { (self.most() - sum).max(0) as u64 };
        pace.min(ledger).min(known)
    }

    /// When such a cost fits, if nothing else is charged: `now`, or later.
    pub(super) fn ready_at(&mut self, now: Instant, charged: &[i64; 4], cost: u32) -> Instant {
        if cost == 0 {
            return now;
        }
        self.renew(now);
        self.hurry(now, charged);
        let limit = self.limit as f64;
        let books = self.books.ready_at(now, charged, limit, f64::from(cost));
        if self.window >= LONG && self.books.room(now, charged, limit).is_some() {
            return books;
        }
        let pace = match &mut self.pace {
            Pace::Requests(cells) => cells.ready_at(now),
            Pace::Tokens(bucket) => bucket.ready_at(now, u64::from(cost)),
        };
        let left = self.most() - i64::from(cost);
        let ledger = if self.follows_books(now) { now } else { self.ledger.ready_at(now, left.max(0)) };
        pace.max(ledger).max(books)
    }

    /// Whether the provider's books are those of a bucket, as its answers have shown.
    pub(super) fn is_bucket(&mut self, is: bool) {
        self.is_bucket = is && self.window < LONG;
    }

    fn follows_books(&self, now: Instant) -> bool {
        self.is_bucket && self.no_bucket.is_none_or(|until| now >= until)
    }

    /// Goes faster while the provider has saved up, and no longer.
    fn hurry(&mut self, now: Instant, charged: &[i64; 4]) {
        let limit = self.limit as f64;
        let exact = matches!(self.pace, Pace::Requests(_));
        let may =
            self.follows_books(now) && self.share == 1.0 && self.no_haste.is_none_or(|until| now >= until);
        let unsure = if may { self.books.unsure(now, charged, limit, exact) } else { None };
        let hasty = unsure.is_some_and(|unsure| {
            let saved = self.books.room(now, charged, limit).unwrap_or(limit);
            saved > unsure + if self.hasty { 0.0 } else { SAVED * limit }
        });
        if hasty != self.hasty {
            self.hasty = hasty;
            self.reshape(now);
        }
    }

    /// How long so much takes to come. A long window's is there at once, or the day is spent.
    pub(super) fn time_for(&self, cost: u64) -> Duration {
        if self.window >= LONG { Duration::ZERO } else { super::bucket::seconds(cost as f64 / self.rate()) }
    }

    pub(super) fn take(&mut self, now: Instant, cost: u32) {
        let cost = self.bounded(cost);
        match &mut self.pace {
            Pace::Requests(cells) => cells.take(now),
            Pace::Tokens(bucket) => bucket.take(now, cost as u64),
        }
        self.ledger.add(now, cost);
    }

    /// What was charged at `then` was never sent.
    pub(super) fn give(&mut self, now: Instant, then: Instant, cost: u32) {
        if then < self.born {
            return;
        }
        let cost = self.bounded(cost);
        match &mut self.pace {
            Pace::Requests(cells) => cells.give(now),
            Pace::Tokens(bucket) => bucket.give(now, cost as u64),
        }
        self.ledger.correct(now, then, -cost);
    }

    /// What was charged at `then` turns out as that.
    pub(super) fn settle(&mut self, now: Instant, then: Instant, charged: u32, cost: u32) {
        if then < self.born || charged == cost {
            return;
        }
        let (charged, cost) = (self.bounded(charged), self.bounded(cost));
        if let Pace::Tokens(bucket) = &mut self.pace {
            bucket.settle(now, charged as u64, cost as u64);
        }
        self.ledger.correct(now, then, cost - charged);
    }

    /// The provider has said a limit. A lower rate is believed at once; of two higher ones running the lower: there are limits that rise a
    /// little with every answer, and never twice to the same.
    pub(super) fn believe(&mut self, now: Instant, limit: u64, window: Duration) {
        let higher = limit as f64 / window.as_secs_f64();
        if self.is_lower(limit, window) {
            return self.adopt(now, limit, window);
        }
        let now_is = self.limit as f64 / self.window.as_secs_f64();
        match self.higher {
            _ if limit == self.limit && window == self.window => self.higher = None,
            Some((last, over)) if over == window => self.adopt(now, limit.min(last), window),
            _ if higher > now_is => self.higher = Some((limit, window)),
            // The same rate, over another window.
            _ => self.adopt(now, limit, window),
        }
    }

    /// Whether it is less a second than what is in force.
    pub(super) fn is_lower(&self, limit: u64, window: Duration) -> bool {
        limit as f64 * self.window.as_secs_f64() < self.limit as f64 * window.as_secs_f64()
    }

    fn adopt(&mut self, now: Instant, limit: u64, window: Duration) {
        if window == self.window { self.set(now, limit) } else { self.rebuild(now, limit, window) }
    }

    /// Back to what was configured: what the provider said was of another window.
    pub(super) fn restore(&mut self, now: Instant) {
        if let Some(limit) = self.configured {
            self.adopt(now, limit, self.kind.window());
            self.from_headers = false;
        }
    }

    /// What is left, as the provider's books show. What cannot be is not looked at.
    pub(super) fn hear(&mut self, said: &Said, window: &Window) {
        let limit = window.limit.unwrap_or(self.limit).max(self.limit) as f64;
        if said.remaining > limit {
            return;
        }
        self.heard = true;
        let mine = self.ledger.sum(said.heard.0) as f64;
        self.books.hear(
            said,
            window.reset,
            self.limit as f64 / self.window.as_secs_f64(),
            limit,
            self.window,
            mine,
        );
        if self.window >= LONG && window.reset.is_some_and(|reset| !reset.is_zero()) {
            self.renews_at = Some(self.books.whole_at());
        }
    }

    /// Begins anew where the provider's own count has.
    fn renew(&mut self, now: Instant) {
        if self.renews_at.take_if(|at| now >= *at).is_some() {
            self.ledger = Ledger::new(self.window, now);
            self.pace = Self::full(self.kind, self.rate(), self.burst, now);
            self.born = now;
        }
    }

    fn full(kind: Kind, rate: f64, burst: Duration, now: Instant) -> Pace {
        match kind {
            Kind::Requests | Kind::RequestsPerDay => Pace::Requests(Cells::new(rate, burst, now)),
            _ => Pace::Tokens(Bucket::with_rate(rate, burst, now)),
        }
    }

    /// A call that was charged at `then` was refused for its rate; `explained` if the headers say that too little was left. Once for all calls
    /// that were under way together.
    pub(super) fn cut(&mut self, now: Instant, then: Instant, explained: bool) {
        self.books.refused(now);
        if explained {
            self.no_haste = now.checked_add(CHASTENED);
        } else {
            self.no_bucket = now.checked_add(CALM);
        }
        if self.window >= LONG || self.cut_at.is_some_and(|at| then <= at) {
            return;
        }
        let used = self.ledger.sum(now) as f64 / self.most().max(1) as f64;
        let idle = match &self.pace {
            Pace::Requests(cells) => cells.level(now) >= 0.9 * f64::from(cells.burst()) && cells.burst() > 1,
            Pace::Tokens(bucket) => bucket.is_full(now),
        };
        if self.burst > SHORTEST && !idle {
            self.burst = (self.burst / 2).max(SHORTEST);
            if std::mem::take(&mut self.lengthened) {
                self.calm = (2 * self.calm).min(CALM_MOST);
            }
        } else if !explained && used > 0.3 {
            self.share = (self.share * if self.heard { SMALL_CUT } else { CUT }).max(0.01);
        } else {
            return;
        }
        self.cut_at = Some(now);
        self.quiet_since = now;
        self.eased_at = now;
        self.reshape(now);
    }

    /// A call went well: what was cut grows back.
    pub(super) fn ease(&mut self, now: Instant) {
        self.books.trust(now);
        let before = (self.share, self.burst);
        let quiet = now.saturating_duration_since(self.quiet_since);
        if self.burst < self.whole_burst && quiet >= self.calm {
            self.burst = (2 * self.burst).min(self.whole_burst);
            self.lengthened = true;
            self.quiet_since = now;
        } else if self.lengthened && quiet >= 4 * self.calm {
            self.calm = CALM;
            self.lengthened = false;
        }
        // Minutes in which nobody called count as well: a small share brings few answers.
        while self.share < 1.0 && now.saturating_duration_since(self.eased_at) >= EASE_EVERY {
            self.eased_at += EASE_EVERY;
            let tested = self.cut_at.is_none_or(|at| self.eased_at.saturating_duration_since(at) > TESTED);
            self.share = (self.share * if tested { EASE_MORE } else { EASE }).min(1.0);
        }
        if (self.share, self.burst) != before {
            self.reshape(now);
        }
    }

    /// What may be taken, below zero what is owed.
    pub(super) fn level(&mut self, now: Instant, charged: &[i64; 4]) -> f64 {
        self.renew(now);
        let books = self.books.room(now, charged, self.limit as f64).map(|room| room.max(0.0));
        if let Some(room) = books.filter(|_| self.window >= LONG) {
            return room;
        }
        let pace = match &self.pace {
            Pace::Requests(cells) => cells.level(now),
            Pace::Tokens(bucket) => bucket.level(now),
        };
        let ledger = if self.follows_books(now) {
            f64::MAX
        } else {
            (self.most() - self.ledger.sum(now)).max(0) as f64
        };
        pace.min(ledger).min(books.unwrap_or(f64::MAX))
    }

    pub(super) fn burst(&self) -> Duration {
        self.burst
    }

    fn rate(&self) -> f64 {
        let haste = if self.hasty { HASTE } else { 1.0 };
        PACE * self.share * haste * self.limit as f64 / self.window.as_secs_f64()
    }

    /// The most that is charged in a window; at least one.
    fn most(&self) -> i64 {
        let exact = matches!(self.pace, Pace::Requests(_)) && self.share == 1.0;
        let most = self.limit as f64 * if exact { 1.0 } else { WINDOW * self.share };
        (most as i64).clamp(1, i64::MAX / 4)
    }

    /// The largest call there can be: a whole limit, or a minute of one that is over less. No provider lets in more.
    pub(super) fn largest(&self) -> u64 {
        let windows = 60.0 / self.window.as_secs_f64().max(1e-3);
        if windows > 1.0 { (self.limit as f64 * windows) as u64 } else { self.limit }
    }

    /// An absurd count must not close the target for years.
    fn bounded(&self, cost: u32) -> i64 {
        i64::from(cost).min(i64::try_from(self.largest()).unwrap_or(i64::MAX))
    }

    fn set(&mut self, now: Instant, limit: u64) {
        self.higher = None;
        if limit != self.limit {
            if !is_same(limit, self.limit) {
                self.share = self.exchange(now, limit);
                self.books.clear(now);
            }
            self.limit = limit.max(1);
            self.reshape(now);
        }
        self.from_headers = true;
    }

    /// Remembers the limit in force, and returns the share of the next one to use: all of it,
    /// unless that limit was in force of late.
    fn exchange(&mut self, now: Instant, next: u64) -> f64 {
        self.former.retain(|of| now.saturating_duration_since(of.until) < REMEMBERED_FOR);
        let known = self.former.iter().position(|of| is_same(next, of.limit));
        let share = known.map_or(1.0, |at| self.former.remove(at).share);
        if self.former.len() == REMEMBERED {
            self.former.remove(0);
        }
        self.former.push(Former { limit: self.limit, share: self.share, until: now });
        share
    }

    fn reshape(&mut self, now: Instant) {
        let (rate, burst, largest) = (self.rate(), self.burst, self.largest() as f64);
        match &mut self.pace {
            Pace::Requests(cells) => *cells = cells.rebuilt(rate, burst, now),
            Pace::Tokens(bucket) => bucket.reshape(now, rate, burst, largest),
        }
    }

    fn rebuild(&mut self, now: Instant, limit: u64, window: Duration) {
        let new = Self::new(self.kind, limit, window, self.whole_burst, now);
        *self = Self {
            configured: self.configured,
            from_headers: true,
            cut_at: self.cut_at,
            no_haste: self.no_haste,
            no_bucket: self.no_bucket,
            quiet_since: self.quiet_since,
            burst: if window < LONG { new.burst.min(self.burst) } else { new.burst },
            ..new
        };
        self.reshape(now);
    }
}

/// Whether a limit is another one that has adapted.
fn is_same(limit: u64, other: u64) -> bool {
    limit.abs_diff(other) as f64 <= DRIFT * other as f64
}
