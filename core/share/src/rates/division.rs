//! The broker's account of the rate limits of one resource. See [the module](super).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{
    Advance, Amounts, BINS, Correction, Draw, LONG_WINDOW_MS, MAX_AMOUNT, MAX_CORRECTIONS, MAX_LIMITS,
    RateLimit, SlidingWindow, StockTime, TRAVEL_BINS, TokenBucket, WINDOWS_MS,
};
use crate::member::{MemberId, WEIGHTS};
use crate::{LEASE_TIME, LeaseTimes};

/// The rate limits of one resource, and the members that draw from them.
#[derive(Debug)]
pub(crate) struct RateDivision {
    bounds: Vec<ChargedLimit>,
    accounts: BTreeMap<MemberId, Account>,
    /// The start of the last advance. Members that drew nothing for long do not save up advances.
    virtual_time: f64,
    stock_time: StockTime,
}

/// One limit, and what was charged to it.
#[derive(Debug)]
struct ChargedLimit {
    /// The smallest limits of the members that use them.
    limit: RateLimit,
    bucket: TokenBucket,
    window: SlidingWindow,
}

/// What the broker knows of one member.
#[derive(Debug)]
struct Account {
    limits: Vec<RateLimit>,
    weight: f64,
    /// The number of its last draw.
    number: u64,
    /// When it drew last.
    drawn_at: Instant,
    /// Empty if the member wants nothing.
    want: Amounts,
    least: Amounts,
    /// The end of the last advance in virtual time.
    served: f64,
    /// What the member was given within each window.
    given: Vec<SlidingWindow>,
}

impl RateDivision {
    /// Creates the account of the limits of the first member. Returns `None` if there are none or
    /// too many.
    pub(crate) fn new(now: Instant, draw: &Draw) -> Option<Self> {
        if draw.limits.is_empty() || draw.limits.len() > MAX_LIMITS {
            return None;
        }
        let bounds = draw.limits.iter().map(|limit| ChargedLimit::new(now, clamped(*limit)));
        Some(Self {
            bounds: bounds.collect(),
            accounts: BTreeMap::new(),
            virtual_time: 0.0,
            stock_time: StockTime::of(&draw.limits, LeaseTimes::LOCAL.advance),
        })
    }

    pub(crate) fn is_member(&self, id: MemberId) -> bool {
        self.accounts.contains_key(&id)
    }

    /// Returns `true` if nothing is lost with this account, because it has no members and no
    /// charges.
    pub(crate) fn is_unused(&mut self, now: Instant) -> bool {
        self.accounts.is_empty() && self.bounds.iter_mut().all(|bound| bound.window.sum(now) == 0)
    }

    /// Applies what a member asks for. The first draw adds the member. Ignores one that does not
    /// fit the limits of the resource.
    pub(crate) fn draw(&mut self, now: Instant, id: MemberId, draw: &Draw) {
        let fits = |amounts: &Amounts| amounts.len() == self.bounds.len();
        let windows = draw.limits.iter().zip(&self.bounds);
        let is_same = fits(&draw.want) && fits(&draw.least) || draw.want.is_empty() && draw.least.is_empty();
        if draw.limits.len() != self.bounds.len()
            || !is_same
            || windows.clone().any(|(limit, bound)| clamped(*limit).window_ms != bound.limit.window_ms)
        {
            return;
        }
        let weight = draw.weight.clamp(WEIGHTS.0, WEIGHTS.1);
        let is_new = !self.is_member(id);
        let account = self.accounts.entry(id).or_insert_with(|| Account {
            limits: Vec::new(),
            weight: 1.0,
            number: 0,
            drawn_at: now,
            want: Amounts::new(),
            least: Amounts::new(),
            served: self.virtual_time,
            given: self.bounds.iter().map(|bound| bound.limit.new_window(now)).collect(),
        });
        // NaN passes through `clamp`.
        account.weight = if weight.is_nan() { 1.0 } else { weight };
        account.limits = draw.limits.iter().map(|limit| clamped(*limit)).collect();
        account.number = draw.number;
        account.drawn_at = now;
        account.want = draw.want.clone();
        account.least = draw.least.clone();
        for correction in draw.corrections.iter().take(MAX_CORRECTIONS) {
            account.correct(now, &mut self.bounds, correction, is_new);
        }
        self.apply_limits(now);
    }

    /// Removes a member. What it has charged remains.
    pub(crate) fn leave(&mut self, now: Instant, id: MemberId) {
        if self.accounts.remove(&id).is_some() {
            self.apply_limits(now);
        }
    }

    /// Applies the smallest limits of the members that wait or have drawn within [`LEASE_TIME`].
    /// Others may know outdated limits.
    fn apply_limits(&mut self, now: Instant) {
        for (nth, bound) in self.bounds.iter_mut().enumerate() {
            let accounts =
                self.accounts.values().filter(|account| account.waits() || now < account.idle_at());
            let limits = accounts.filter_map(|account| account.limits.get(nth));
            if let Some(limit) = limits.copied().reduce(RateLimit::smaller)
                && limit != bound.limit
            {
                bound.limit = limit;
                bound.bucket.update_rate(now, limit.per_second, limit.burst(), limit.per_window as f64);
            }
        }
    }

    /// Gives the advances that fit now. Each ends the draw of its member.
    pub(crate) fn settle(&mut self, now: Instant) -> Vec<(MemberId, Advance)> {
        self.apply_limits(now);
        let members = self.accounts.len();
        let mut advances = Vec::new();
        while let Some((id, amounts)) = self.next(now)
            && self.bounds.iter_mut().zip(&amounts).all(|(bound, amount)| bound.ready_at(now, *amount) <= now)
            && let Some(account) = self.accounts.get_mut(&id)
        {
            let parts = self.bounds.iter().zip(&amounts);
            let part =
                parts.map(|(bound, amount)| *amount as f64 / bound.limit.per_second).fold(0.0, f64::max);
            let start = account.served.max(self.virtual_time);
            self.virtual_time = start;
            account.served = start + part / account.weight;
            account.want.clear();
            account.least.clear();
            for ((bound, given), amount) in self.bounds.iter_mut().zip(&mut account.given).zip(&amounts) {
                bound.bucket.take(now, *amount);
                bound.window.charge(now, now, *amount as i64);
                given.charge(now, now, *amount as i64);
            }
            let charged = self.bounds.iter_mut().map(|bound| bound.window.sum(now).unsigned_abs()).collect();
            advances.push((id, Advance { number: account.number, amounts, members, charged }));
            // If the member has waited for long, its limits do not count any more.
            self.apply_limits(now);
        }
        advances
    }

    /// Returns when an advance fits that does not fit now, or `None` if no member waits.
    pub(crate) fn next_wake(&mut self, now: Instant) -> Option<Instant> {
        let (_, amounts) = self.next(now)?;
        let bounds = self.bounds.iter_mut().zip(amounts);
        let ready_at = bounds.map(|(bound, amount)| bound.ready_at(now, amount)).max();
        // Higher limits may apply then.
        let idle = self.accounts.values().filter(|account| !account.waits()).map(Account::idle_at);
        ready_at.into_iter().chain(idle.filter(|at| *at > now)).min()
    }

    /// Returns the member that is served next, and its advance: its next call, and as many like it
    /// as it wants and is entitled to for the time of a stock.
    fn next(&mut self, now: Instant) -> Option<(MemberId, Amounts)> {
        let waiting = self.accounts.iter().filter(|(_, account)| account.waits());
        let weights: f64 = waiting.clone().map(|(_, account)| account.weight).sum();
        let start = |account: &Account| account.served.max(self.virtual_time);
        let (id, account) = waiting.min_by(|(_, a), (_, b)| start(a).total_cmp(&start(b)))?;
        let time = self.stock_time.0.as_secs_f64() * account.weight / weights;
        let amounts = account.want.iter().zip(&account.least).zip(&mut self.bounds);
        let calls = amounts
            .filter(|((_, least), _)| **least > 0)
            .map(|((want, least), bound)| (*want as f64).min(bound.entitled(now, time)) / *least as f64);
        let calls = (calls.fold(f64::INFINITY, f64::min) as u64).max(1);
        // A call that is larger than a limit gets all of it.
        let amounts = account.least.iter().zip(&self.bounds);
        let amounts = amounts.map(|(least, bound)| least.saturating_mul(calls).min(bound.limit.per_window));
        Some((*id, amounts.collect()))
    }
}

impl ChargedLimit {
    fn new(now: Instant, limit: RateLimit) -> Self {
        let bucket = TokenBucket::with_rate(limit.per_second, limit.burst(), now);
        Self { limit, bucket, window: limit.new_window(now) }
    }

    /// Returns the amount for `time` seconds. The charges of a long window are not smoothed, so
    /// that it is what is left.
    fn entitled(&mut self, now: Instant, time: f64) -> f64 {
        if self.limit.window_ms < LONG_WINDOW_MS {
            return time * self.limit.per_second;
        }
        let left = self.limit.per_window as f64 - self.window.sum(now) as f64;
        self.bucket.level(now).min(left)
    }

    /// Returns the earliest time at which `amount` fits if nothing else is charged.
    fn ready_at(&mut self, now: Instant, amount: u64) -> Instant {
        if amount == 0 {
            return now;
        }
        let most = self.limit.per_window.saturating_sub(amount) as i64;
        self.bucket.ready_at(now, amount).max(self.window.ready_at(now, most))
    }
}

impl Account {
    fn waits(&self) -> bool {
        !self.want.is_empty()
    }

    /// Returns from when on the limits of the member do not count if it does not wait.
    fn idle_at(&self) -> Instant {
        self.drawn_at + LEASE_TIME
    }

    /// Applies a correction. A member cannot take back more than it was given.
    ///
    /// What a new member has charged before (`is_past`) has been accruing again since then.
    fn correct(&mut self, now: Instant, bounds: &mut [ChargedLimit], correction: &Correction, is_past: bool) {
        let age = Duration::from_millis(correction.age_ms);
        let Some(then) = now.checked_sub(age) else { return };
        for ((bound, given), amount) in bounds.iter_mut().zip(&mut self.given).zip(&correction.amounts) {
            let most = bound.limit.per_window as i64;
            let amount = (*amount).clamp(-given.sum(now), most);
            if amount < 0 {
                bound.bucket.refund(now, amount.unsigned_abs());
            } else if !is_past || age < bound.limit.burst() {
                bound.bucket.take(now, amount.unsigned_abs());
            }
            bound.window.charge(now, then, amount);
            given.charge(now, then, amount);
        }
    }
}

impl RateLimit {
    /// Creates the window of this limit. What is charged may be sent until the end of the stock's
    /// time, and then travels to the provider.
    fn new_window(&self, now: Instant) -> SlidingWindow {
        let window = Duration::from_millis(self.window_ms);
        let bin = window.as_secs_f64() / BINS as f64;
        let stock = StockTime::of(std::slice::from_ref(self), LeaseTimes::LOCAL.advance).0.as_secs_f64();
        SlidingWindow::with_bins(window, BINS, (stock / bin).ceil() as u64 + TRAVEL_BINS, now)
    }

    fn smaller(self, other: Self) -> Self {
        Self {
            window_ms: self.window_ms,
            per_window: self.per_window.min(other.per_window),
            per_second: self.per_second.min(other.per_second),
            burst_ms: self.burst_ms.min(other.burst_ms),
        }
    }

    fn burst(&self) -> Duration {
        Duration::from_millis(self.burst_ms)
    }
}

/// Returns a limit without impossible values.
fn clamped(limit: RateLimit) -> RateLimit {
    let per_window = limit.per_window.clamp(1, MAX_AMOUNT);
    let per_second = if limit.per_second.is_nan() { 0.0 } else { limit.per_second };
    RateLimit {
        window_ms: limit.window_ms.clamp(WINDOWS_MS.0, WINDOWS_MS.1),
        per_window,
        per_second: per_second.clamp(1e-6, MAX_AMOUNT as f64),
        burst_ms: limit.burst_ms.min(WINDOWS_MS.1),
    }
}
