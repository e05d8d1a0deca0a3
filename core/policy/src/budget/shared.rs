//! Rate budgets that several processes share. See [`tidegate_share::rates`].
//!
//! The limits of the configuration are shared from the beginning, and those that only a provider
//! announces as soon as its headers have done so. They are two resources, because processes learn
//! at different times what is announced, and the configured limits must hold meanwhile.
//!
//! Each process keeps its own account of all limits as well: its charges are within the limits in
//! any case, a part of the limits is in force if the broker is lost, and a new broker learns from
//! the account what was used. What the headers say is left is not shared, because each process sees
//! what all of them have left.

use std::time::{Duration, Instant};

use super::budget_kind::SharedSetKind;
use super::counting::ChargeTotals;
use super::quota::Quota;
use super::{BudgetKind, Charge, Lack, Need, RateBudgets};
use tidegate_share::LeaseTimes;
use tidegate_share::rates::{Amounts, Correction, Draw, MAX_DELAY, RateLimit, RateStock, RateTerms, seconds};

/// The least delay before it is checked again whether an advance has arrived.
const MIN_CHECK_DELAY: Duration = Duration::from_millis(20);
/// The maximum number of entries for the charges of a window when a process joins a broker.
const PAST_CHARGES: usize = 60;
/// The maximum time since an advance for which it is estimated what all processes have charged.
const MAX_ADVANCE_AGE: Duration = Duration::from_secs(10);
/// That time is at most the window divided by this number.
const ADVANCE_AGES_PER_WINDOW: u32 = 6;

/// A set of limits that several processes share. If a limit is added or its window changes, another
/// set replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedSet {
    kind: SharedSetKind,
    /// The number of sets of this kind so far.
    number: u32,
}

/// What this process shares with others.
#[derive(Debug)]
pub(super) struct SharedLimits {
    strict: bool,
    times: LeaseTimes,
    /// The sets of limits, by kind.
    stocks: [SetStock; 2],
}

/// The current set of limits of one kind, and what this process may charge to it.
#[derive(Debug, Default)]
struct SetStock {
    limits: Vec<(BudgetKind, Duration)>,
    number: u32,
    /// `None` if there are no limits.
    stock: Option<RateStock>,
}

/// What this process may charge to the shared limits, in the order of the limits.
pub(super) struct SharedPart<'a> {
    stocks: [Option<&'a RateStock>; 2],
    terms: [RateTerms; 2],
    /// The index of the next limit of each kind.
    next: [usize; 2],
    totals: &'a ChargeTotals,
}

impl SharedLimits {
    fn stock(&self, set_kind: SharedSetKind) -> Option<&RateStock> {
        self.stocks[set_kind as usize].stock.as_ref()
    }

    fn stock_mut(&mut self, set_kind: SharedSetKind) -> Option<&mut RateStock> {
        self.stocks[set_kind as usize].stock.as_mut()
    }

    /// Returns the number of processes that share a limit, as last heard. `None` if it is not
    /// shared.
    pub(super) fn processes(&self, quota: &Quota) -> Option<usize> {
        quota.shared_window.and(self.stock(quota.shared_set_kind())).map(RateStock::members)
    }

    fn set(&self, set_kind: SharedSetKind) -> Option<SharedSet> {
        let set = &self.stocks[set_kind as usize];
        set.stock.as_ref().map(|_| SharedSet { kind: set_kind, number: set.number })
    }

    /// Starts a set anew if its limits have changed.
    fn update(&mut self, now: Instant, quotas: &[Quota]) {
        let stocks = self.stocks.iter().filter_map(|set| set.stock.as_ref());
        let members = stocks.map(RateStock::members).max().unwrap_or(1);
        for set_kind in SharedSetKind::ALL {
            let set = &mut self.stocks[set_kind as usize];
            let limits =
                of_set(quotas, set_kind).filter_map(|quota| Some((quota.kind, quota.shared_window?)));
            if !limits.clone().eq(set.limits.iter().copied()) {
                set.limits = limits.collect();
                set.number += 1;
                let limits = limits_of(quotas, set_kind, now);
                set.stock = (!limits.is_empty()).then(|| {
                    let mut stock = RateStock::new(&limits, self.strict, self.times, now);
                    if members > 1 {
                        // The number that shared the earlier limits, until the broker tells the new
                        // one.
                        stock.set_members(members);
                    }
                    stock
                });
            }
        }
    }
}

impl SharedPart<'_> {
    /// Returns what may be charged to the next limit, which is that of `quota`.
    pub(super) fn next_available(&mut self, now: Instant, quota: &Quota) -> u64 {
        if quota.shared_window.is_none() {
            return u64::MAX;
        }
        let set_kind = quota.shared_set_kind() as usize;
        let limit = self.next[set_kind];
        self.next[set_kind] += 1;
        if quota.follows_provider(now, self.totals) {
            return u64::MAX;
        }
        match (self.terms[set_kind], self.stocks[set_kind]) {
            (RateTerms::Advance, Some(stock)) => stock.available(now, limit),
            (RateTerms::Nothing(_), _) => 0,
            _ => u64::MAX,
        }
    }
}

impl RateBudgets {
    /// Shares the limits with other processes: those so far, and those that responses announce.
    ///
    /// If `strict`, no call is admitted while there is no broker.
    pub fn share(&mut self, now: Instant, strict: bool, times: LeaseTimes) {
        self.shared = Some(Box::new(SharedLimits { strict, times, stocks: Default::default() }));
        self.update_shared(now);
    }

    /// Shares the limits as they are now, if limits are shared.
    pub(super) fn update_shared(&mut self, now: Instant) {
        if let Some(shared) = &mut self.shared {
            self.quotas.iter_mut().for_each(|quota| quota.share_with_others(now));
            shared.update(now, &self.quotas);
        }
    }

    /// Returns the sets of limits that are shared now.
    pub fn shared_sets(&self) -> impl Iterator<Item = SharedSet> {
        SharedSetKind::ALL.into_iter().filter_map(|set_kind| self.shared.as_ref()?.set(set_kind))
    }

    /// Returns the name of the current set of the kind of `set`: the names of its limits.
    /// Processes share a set if they have the same name for it.
    pub fn shared_name(&self, set: SharedSet) -> String {
        let limits = self.shared.as_ref().map(|shared| &shared.stocks[set.kind as usize].limits);
        let name =
            |(kind, window): &(BudgetKind, Duration)| format!("{}/{}", kind.as_str(), window.as_millis());
        let names: Vec<_> = limits.into_iter().flatten().map(name).collect();
        let prefix = if set.kind == SharedSetKind::Announced { "announced:" } else { "" };
        format!("{prefix}{}", names.join(","))
    }

    /// Runs `event` on the amounts of this process, unless the set is not shared any more.
    pub fn with_stock<T>(&mut self, set: SharedSet, event: impl FnOnce(&mut RateStock) -> T) -> Option<T> {
        let shared = self.shared.as_mut().filter(|shared| shared.set(set.kind) == Some(set))?;
        shared.stock_mut(set.kind).map(event)
    }

    /// Returns the message to the broker that is due, or `None` if there is none. Call this method
    /// after each event, when the first call has been made. `weight` is that of the calls that
    /// wait.
    pub fn draw(&mut self, now: Instant, set: SharedSet, weight: impl FnOnce() -> f64) -> Option<Draw> {
        let is_due = |stock: &mut RateStock| {
            stock.begin(now);
            stock.is_draw_due()
        };
        if !self.with_stock(set, is_due)? {
            return None;
        }
        let limits = limits_of(&self.quotas, set.kind, now);
        let weight = weight();
        self.with_stock(set, |stock| {
            stock.set_weight(weight);
            stock.draw(now, limits)
        })
    }

    /// Returns the message that tells the broker of changed charges, or `None` if none is due. Call
    /// this method periodically.
    pub fn correct_due(&mut self, now: Instant, set: SharedSet) -> Option<Draw> {
        if !self.with_stock(set, |stock| stock.give_back_expired(now))? {
            return None;
        }
        let limits = limits_of(&self.quotas, set.kind, now);
        self.with_stock(set, |stock| stock.draw(now, limits))
    }

    /// Returns the message that joins a broker, or `None` if the set is not shared any more.
    pub fn join(&mut self, now: Instant, set: SharedSet) -> Option<Draw> {
        let limits = limits_of(&self.quotas, set.kind, now);
        let mut past = Vec::new();
        let quotas = self.quotas.iter_mut().filter(|quota| quota.is_shared(set.kind));
        for (nth, quota) in quotas.enumerate() {
            let charges = quota.charges(now);
            for some in charges.chunks(charges.len().div_ceil(PAST_CHARGES).max(1)) {
                let mut amounts = vec![0; limits.len()];
                amounts[nth] = some.iter().map(|(_, charge)| charge).sum();
                let age_ms = some.last().map_or(0, |(age, _)| age.as_millis() as u64);
                past.push(Correction { age_ms, amounts });
            }
        }
        self.with_stock(set, |stock| stock.join(now, limits, past))
    }

    /// Returns `true` if this process has charged something to a set within the windows of its
    /// limits.
    pub fn has_charges(&mut self, now: Instant, set: SharedSet) -> bool {
        let mut quotas = self.quotas.iter_mut().filter(|quota| quota.is_shared(set.kind));
        quotas.any(|quota| !quota.charges(now).is_empty())
    }

    /// Brings the limits up to `now`: all of them are in force, or a part if there is no broker.
    /// Returns what may be charged to them.
    pub(super) fn shared_part(&mut self, now: Instant) -> (SharedPart<'_>, &mut [Quota]) {
        let shared = self.shared.as_deref();
        let stocks = SharedSetKind::ALL.map(|set_kind| shared.and_then(|shared| shared.stock(set_kind)));
        let terms = stocks.map(|stock| stock.map_or(RateTerms::Part(1), |stock| stock.terms(now)));
        for quota in &mut self.quotas {
            let terms = terms[quota.shared_set_kind() as usize];
            quota.divide(now, if let RateTerms::Part(divided_by) = terms { divided_by } else { 1 });
        }
        (SharedPart { stocks, terms, next: [0; 2], totals: &self.totals }, &mut self.quotas)
    }

    /// Tells what the first waiting call needs, so that the broker is asked for it if it is not
    /// available.
    pub fn want(&mut self, now: Instant, need: &Need) {
        if self.shared.is_none() {
            return;
        }
        for set_kind in SharedSetKind::ALL {
            if self.shared_shortage(now, need, set_kind).is_some() {
                // The account of the broker may be full when that of the provider has begun again.
                let cost = |quota: &Quota| {
                    if quota.follows_provider(now, &self.totals) {
                        0
                    } else {
                        quota.cost(need).unsigned_abs()
                    }
                };
                let costs: Amounts = of_set(&self.quotas, set_kind).map(cost).collect();
                if let Some(stock) = self.shared.as_mut().and_then(|shared| shared.stock_mut(set_kind)) {
                    stock.lack(&costs);
                }
            }
        }
    }

    /// Returns what delays a call for longest at the shared limits, and when that may have changed.
    pub(super) fn shared_lack(&mut self, now: Instant, need: &Need) -> Option<Lack> {
        self.shared.as_ref()?;
        let lack_of = |set_kind| {
            let (kind, time, terms) = self.shared_shortage(now, need, set_kind)?;
            match terms {
                RateTerms::Advance => {
                    let stock = self.shared.as_ref()?.stock(set_kind)?;
                    let members = u32::try_from(stock.members()).unwrap_or(u32::MAX);
                    // What the others use is not known. As long as it has lasted, it may last
                    // again.
                    let delay =
                        time.saturating_mul(members).min(stock.waited(now)).clamp(MIN_CHECK_DELAY, MAX_DELAY);
                    Some(Lack::Limit(kind, now + delay))
                }
                // A broker answers much earlier than that, if there is one.
                RateTerms::Nothing(until) => {
                    Some(Lack::Share(until.map(|until| until.min(now + MIN_CHECK_DELAY))))
                }
                RateTerms::Part(_) => None,
            }
        };
        SharedSetKind::ALL.into_iter().filter_map(lack_of).reduce(Lack::longer)
    }

    /// Returns the limit of a set of which a call lacks most in this process, and the time in
    /// which that accrues.
    fn shared_shortage(
        &mut self,
        now: Instant,
        need: &Need,
        set_kind: SharedSetKind,
    ) -> Option<(BudgetKind, Duration, RateTerms)> {
        let (mut part, quotas) = self.shared_part(now);
        let mut lacking: Option<(BudgetKind, Duration, RateTerms)> = None;
        for quota in of_set(quotas, set_kind) {
            let missing = quota.cost(need).unsigned_abs().saturating_sub(part.next_available(now, quota));
            if missing > 0 {
                let rate = quota.shared_limit(now).map_or(1.0, |limit| limit.per_second);
                let time = seconds(missing as f64 / rate);
                if lacking.is_none_or(|(_, longest, _)| longest < time) {
                    lacking = Some((quota.kind, time, part.terms[set_kind as usize]));
                }
            }
        }
        lacking
    }

    /// Returns an upper bound of what the processes together have charged to a limit within its
    /// window. Infinite if it is not known yet, and 0 if only the charges of this process are
    /// known.
    pub(super) fn charged_by_all(&self, now: Instant, kind: BudgetKind) -> f64 {
        let Some(shared) = self.shared.as_deref() else { return 0.0 };
        let Some(quota) = self.quotas.iter().find(|quota| quota.kind == kind) else { return f64::INFINITY };
        let set_kind = quota.shared_set_kind();
        let (Some(stock), Some(window)) = (shared.stock(set_kind), quota.shared_window) else {
            return f64::INFINITY;
        };
        match stock.terms(now) {
            RateTerms::Advance if window == quota.window => {}
            RateTerms::Nothing(_) => return f64::INFINITY,
            RateTerms::Advance | RateTerms::Part(_) => return 0.0,
        }
        let nth = of_set(&self.quotas, set_kind).position(|shared| shared.kind == kind);
        let Some((charged, age)) = nth.and_then(|nth| stock.charged_by_all(now, nth)) else {
            return f64::INFINITY;
        };
        if age > MAX_ADVANCE_AGE.min(window / ADVANCE_AGES_PER_WINDOW) {
            return 0.0;
        }
        charged as f64 + quota.limit as f64 * age.as_secs_f64() / window.as_secs_f64()
    }

    /// Charges an admitted call to the amounts of this process.
    pub(super) fn charge_shared(&mut self, now: Instant, need: &Need) {
        self.each_stock(|stock, quotas| {
            let costs: Amounts = quotas.map(|quota| quota.cost(need).unsigned_abs()).collect();
            stock.charge(now, &costs);
        });
    }

    /// Replaces a charge by one for `counted`.
    pub(super) fn correct_shared(&mut self, charge: &Charge, counted: Option<&Need>) {
        self.each_stock(|stock, quotas| {
            let change = |quota: &Quota| {
                // The broker knows of no charge that was made before the limit was known.
                let is_charged = charge.charged_at >= quota.shared_since;
                let counted = counted.map_or(0, |need| quota.cost(need));
                if is_charged { counted - quota.cost(&charge.need) } else { 0 }
            };
            let changes: Vec<i64> = quotas.map(change).collect();
            stock.correct(charge.charged_at, &changes);
        });
    }

    /// Runs `event` on the amounts of this process and the limits of each set.
    fn each_stock(&mut self, event: impl Fn(&mut RateStock, &mut dyn Iterator<Item = &Quota>)) {
        let Some(shared) = &mut self.shared else { return };
        for set_kind in SharedSetKind::ALL {
            if let Some(stock) = shared.stock_mut(set_kind) {
                event(stock, &mut of_set(&self.quotas, set_kind));
            }
        }
    }
}

/// Returns the shared limits of one set, in the order of its stock.
fn of_set(quotas: &[Quota], set_kind: SharedSetKind) -> impl Iterator<Item = &Quota> + Clone {
    quotas.iter().filter(move |quota| quota.is_shared(set_kind))
}

/// Returns the shared limits of one set for the broker.
fn limits_of(quotas: &[Quota], set_kind: SharedSetKind, now: Instant) -> Vec<RateLimit> {
    of_set(quotas, set_kind).filter_map(|quota| quota.shared_limit(now)).collect()
}
