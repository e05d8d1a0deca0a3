//! Rate budgets that several processes share. See [`tidegate_share::rates`].
//!
//! The limits of the configuration are shared. Each process keeps its own account of them as well: its
//! charges are within the limits in any case, a part of the limits is in force if the broker is lost, and a
//! new broker learns from the account what was used. What a provider announces is not shared, because each
//! process sees in the headers what all of them have left.

use std::time::{Duration, Instant};

use super::counting::ChargeTotals;
use super::quota::Quota;
use super::{BudgetKind, Charge, Need, RateBudgets};
use tidegate_share::LeaseTimes;
use tidegate_share::rates::{Amounts, Correction, Draw, MAX_DELAY, RateLimit, RateStock, RateTerms, seconds};

/// The least delay before it is checked again whether an advance has arrived.
const MIN_CHECK_DELAY: Duration = Duration::from_millis(20);
/// The maximum number of entries for the charges of a window when a process joins a broker.
const PAST_CHARGES: usize = 60;

/// What this process may charge to the shared limits, in the order of the limits.
pub(super) struct SharedPart<'a> {
    stock: Option<&'a RateStock>,
    terms: RateTerms,
    next: usize,
    totals: &'a ChargeTotals,
}

impl SharedPart<'_> {
    /// Returns what may be charged to the next limit, which is that of `quota`.
    pub(super) fn next_available(&mut self, now: Instant, quota: &Quota) -> u64 {
        if quota.shared_window.is_none() {
            return u64::MAX;
        }
        let limit = self.next;
        self.next += 1;
        if quota.follows_provider(now, self.totals) {
            return u64::MAX;
        }
        match (self.terms, self.stock) {
            (RateTerms::Advance, Some(stock)) => stock.available(now, limit),
            (RateTerms::Nothing(_), _) => 0,
            _ => u64::MAX,
        }
    }
}

impl RateBudgets {
    /// Shares the limits so far with other processes. Returns `false` if there are none.
    ///
    /// If `strict`, no call is admitted while there is no broker.
    pub fn share(&mut self, now: Instant, strict: bool, times: LeaseTimes) -> bool {
        for quota in &mut self.quotas {
            quota.shared_window = Some(quota.window);
        }
        let limits = self.shared_limits();
        self.stock = (!limits.is_empty()).then(|| Box::new(RateStock::new(&limits, strict, times, now)));
        self.stock.is_some()
    }

    /// Returns the names of the shared limits. Processes share a limit if they have the same name for it.
    pub fn shared_names(&self) -> String {
        let shared = self.quotas.iter().filter_map(|quota| Some((quota.kind, quota.shared_window?)));
        let names = shared.map(|(kind, window)| format!("{}/{}", kind.as_str(), window.as_millis()));
        names.collect::<Vec<_>>().join(",")
    }

    /// Runs `event` on the amounts of this process, if limits are shared.
    pub fn with_stock<T>(&mut self, event: impl FnOnce(&mut RateStock) -> T) -> Option<T> {
        self.stock.as_mut().map(|stock| event(stock))
    }

    /// Returns the message to the broker that is due, or `None` if there is none. Call this method after each
    /// event, when the first call has been made. `weight` is that of the calls that wait.
    pub fn draw(&mut self, now: Instant, weight: impl FnOnce() -> f64) -> Option<Draw> {
        let stock = self.stock.as_mut()?;
        stock.begin(now);
        if !stock.is_draw_due() {
            return None;
        }
        stock.set_weight(weight());
        let limits = self.shared_limits();
        Some(self.stock.as_mut()?.draw(now, limits))
    }

    /// Returns the message that tells the broker of changed charges, or `None` if none is due. Call this method
    /// periodically.
    pub fn correct_due(&mut self, now: Instant) -> Option<Draw> {
        if !self.stock.as_mut()?.is_correction_due(now) {
            return None;
        }
        let limits = self.shared_limits();
        Some(self.stock.as_mut()?.draw(now, limits))
    }

    /// Returns the message that joins a broker, or `None` if no limits are shared.
    pub fn join(&mut self, now: Instant) -> Option<Draw> {
        let limits = self.shared_limits();
        let mut past = Vec::new();
        for (nth, quota) in self.quotas.iter_mut().filter(|quota| quota.shared_window.is_some()).enumerate() {
            let charges = quota.charges(now);
            for some in charges.chunks(charges.len().div_ceil(PAST_CHARGES).max(1)) {
                let mut amounts = vec![0; limits.len()];
                amounts[nth] = some.iter().map(|(_, charge)| charge).sum();
                let age_ms = some.last().map_or(0, |(age, _)| age.as_millis() as u64);
                past.push(Correction { age_ms, amounts });
            }
        }
        Some(self.stock.as_mut()?.join(now, limits, past))
    }

    fn shared_limits(&self) -> Vec<RateLimit> {
        self.quotas.iter().filter_map(Quota::shared_limit).collect()
    }

    /// Brings the limits up to `now`: all of them are in force, or a part if there is no broker. Returns what
    /// may be charged to them.
    pub(super) fn shared_part(&mut self, now: Instant) -> (SharedPart<'_>, &mut [Quota]) {
        let terms = self.stock.as_ref().map_or(RateTerms::Part(1), |stock| stock.terms(now));
        let divided_by = if let RateTerms::Part(divided_by) = terms { divided_by } else { 1 };
        self.quotas.iter_mut().for_each(|quota| quota.divide(now, divided_by));
        (SharedPart { stock: self.stock.as_deref(), terms, next: 0, totals: &self.totals }, &mut self.quotas)
    }

    /// Tells what the first waiting call needs, so that the broker is asked for it if it is not available.
    pub fn want(&mut self, now: Instant, need: &Need) {
        if self.stock.is_some() && self.shared_shortage(now, need).is_some() {
            // The account of the broker may be full when that of the provider has begun again.
            let cost = |quota: &Quota| {
                if quota.follows_provider(now, &self.totals) { 0 } else { quota.cost(need).unsigned_abs() }
            };
            let costs: Amounts = shared(&self.quotas).map(cost).collect();
            self.with_stock(|stock| stock.lack(&costs));
        }
    }

    /// Returns the limit of which a call lacks most in this process, and when that may have changed.
    pub(super) fn shared_ready_at(&mut self, now: Instant, need: &Need) -> Option<(BudgetKind, Instant)> {
        self.stock.as_ref()?;
        let (kind, time, terms) = self.shared_shortage(now, need)?;
        let at = match terms {
            RateTerms::Advance => {
                let stock = self.stock.as_ref()?;
                let members = u32::try_from(stock.members()).unwrap_or(u32::MAX);
                // What the others use is not known. As long as it has lasted, it may last again.
                now + time
                    .saturating_mul(members)
                    .min(stock.has_waited(now))
                    .clamp(MIN_CHECK_DELAY, MAX_DELAY)
            }
            RateTerms::Nothing(until) => until.unwrap_or(now + MAX_DELAY),
            RateTerms::Part(_) => return None,
        };
        Some((kind, at))
    }

    /// Returns the limit of which a call lacks most in this process, and the time in which that accrues.
    fn shared_shortage(&mut self, now: Instant, need: &Need) -> Option<(BudgetKind, Duration, RateTerms)> {
        let (mut part, quotas) = self.shared_part(now);
        let mut lacking: Option<(BudgetKind, Duration, RateTerms)> = None;
        for quota in shared(quotas) {
            let missing = quota.cost(need).unsigned_abs().saturating_sub(part.next_available(now, quota));
            if missing > 0 {
                let rate = quota.shared_limit().map_or(1.0, |limit| limit.per_second);
                let time = seconds(missing as f64 / rate);
                if lacking.is_none_or(|(_, longest, _)| longest < time) {
                    lacking = Some((quota.kind, time, part.terms));
                }
            }
        }
        lacking
    }

    /// Charges an admitted call to the amounts of this process.
    pub(super) fn charge_shared(&mut self, now: Instant, need: &Need) {
        let Some(stock) = &mut self.stock else { return };
        let costs: Amounts = shared(&self.quotas).map(|quota| quota.cost(need).unsigned_abs()).collect();
        stock.charge(now, &costs);
    }

    /// Replaces a charge by one for `counted`.
    pub(super) fn correct_shared(&mut self, charge: &Charge, counted: Option<&Need>) {
        let Some(stock) = &mut self.stock else { return };
        let changes = shared(&self.quotas)
            .map(|quota| counted.map_or(0, |need| quota.cost(need)) - quota.cost(&charge.need));
        let changes: Vec<i64> = changes.collect();
        stock.correct(charge.charged_at, &changes);
    }
}

/// Returns the limits that other processes share, in the order of the stock.
fn shared(quotas: &[Quota]) -> impl Iterator<Item = &Quota> {
    quotas.iter().filter(|quota| quota.shared_window.is_some())
}
