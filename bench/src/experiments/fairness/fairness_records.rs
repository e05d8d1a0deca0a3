//! Records what each tenant receives in a run, independently of the scheduling policy, and computes
//! the figures of fairness.
//!
//! A *gap* of two tenants is how far apart they drift in an interval in which both have calls
//! waiting: the difference of the tokens that they received, each divided by the tenant's weight,
//! varies in the interval, and the gap is its highest value minus its lowest. The figure is the
//! largest gap over all such intervals. There are two kinds of gaps. The *charged* gap counts
//! tokens that are charged when a call is dispatched (and corrected when the call ends). The
//! *served* gap counts input tokens at dispatch, and output tokens when they are produced.

use std::time::Duration;

use super::processor_sharing::Gps;
use crate::schedulers::Call;

/// The length of the windows in which shares are compared with those of the oracle, which serves
/// all tenants exactly by weight ([`Gps`]).
const WINDOW: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(super) struct Accounts {
    weights: Vec<f64>,
    corrected: bool,
    tenants: Vec<Tenant>,
    gps: Gps,
    pairs: Vec<Pair>,
    slots_held: f64,
    last: (Duration, usize),
    in_flight: f64,
    /// The highest number of tokens (input and output) of the calls in flight at any moment.
    pub(super) most_in_flight: f64,
    pub(super) longest_input: f64,
    window: Window,
    /// The largest difference between a tenant's share of the dispatched tokens and its share under
    /// the oracle, in any window of five minutes, from 0 to 1.
    pub(super) window_error: f64,
    /// The largest difference between a tenant's share of the dispatched tokens and its share under
    /// the oracle, over the whole run, from 0 to 1.
    pub(super) share_error: f64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Tenant {
    waiting: usize,
    charged: f64,
    served: f64,
    /// The true cost, in tokens, of the tenant's dispatched calls.
    pub(super) begun: f64,
    pub(super) largest_charge: f64,
    error: f64,
    /// The highest sum, at any moment, of the estimation errors of the tenant's calls in flight, in
    /// tokens. The error of a call is the absolute difference between its estimated and its true
    /// cost.
    pub(super) most_error: f64,
    pub(super) came: usize,
    pub(super) refused: usize,
    pub(super) waits: Vec<f64>,
    arrivals: std::collections::VecDeque<Duration>,
}

/// Two tenants and their gaps (see the [module documentation](self)). An interval ends as soon as
/// one of the two has no waiting call.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) one: usize,
    pub(super) other: usize,
    charged: Range,
    served: Range,
}

#[derive(Clone, Copy, Debug, Default)]
struct Range {
    now: Option<(f64, f64)>,
    most: f64,
}

impl Range {
    fn see(&mut self, value: f64) {
        let (low, high) = self.now.map_or((value, value), |(low, high)| (low.min(value), high.max(value)));
        self.now = Some((low, high));
        self.most = self.most.max(high - low);
    }
}

#[derive(Clone, Debug, Default)]
struct Window {
    ends: Duration,
    begun: Vec<f64>,
    ideal: Vec<f64>,
}

impl Accounts {
    /// Creates the records of a run before its first call. `corrected` is `true` if charges are
    /// corrected when calls end.
    pub(super) fn new(weights: &[f64], corrected: bool) -> Self {
        let tenants = weights.len();
        let pairs = (0..tenants).flat_map(|one| (one + 1..tenants).map(move |other| (one, other)));
        Self {
            weights: weights.to_vec(),
            corrected,
            tenants: vec![Tenant::default(); tenants],
            gps: Gps::new(weights),
            pairs: pairs
                .map(|(one, other)| Pair { one, other, charged: Range::default(), served: Range::default() })
                .collect(),
            slots_held: 0.0,
            last: (Duration::ZERO, 0),
            in_flight: 0.0,
            most_in_flight: 0.0,
            longest_input: 0.0,
            window: Window { ends: WINDOW, begun: vec![0.0; tenants], ideal: vec![0.0; tenants] },
            window_error: 0.0,
            share_error: f64::NAN,
        }
    }

    pub(super) fn arrived(&mut self, call: &Call, accepted: bool) {
        let Some(tenant) = self.tenants.get_mut(call.tenant) else { return };
        tenant.came += 1;
        if accepted {
            tenant.waiting += 1;
            tenant.arrivals.push_back(call.arrives);
            self.gps.arrive(call.tenant, call.cost());
            self.compare();
        } else {
            tenant.refused += 1;
        }
    }

    pub(super) fn dispatched(&mut self, now: Duration, call: &Call) {
        while now >= self.window.ends {
            self.turn_window();
        }
        let Some(tenant) = self.tenants.get_mut(call.tenant) else { return };
        tenant.charged += call.estimate;
        tenant.served += call.input;
        tenant.begun += call.cost();
        tenant.largest_charge = tenant.largest_charge.max(call.estimate);
        tenant.error += (call.estimate - call.cost()).abs();
        tenant.most_error = tenant.most_error.max(tenant.error);
        tenant.arrivals.pop_front();
        tenant.waits.push(now.saturating_sub(call.arrives).as_secs_f64());
        self.gps.serve(call.cost());
        self.in_flight += call.cost();
        self.most_in_flight = self.most_in_flight.max(self.in_flight);
        self.longest_input = self.longest_input.max(call.input);
        // Both tenants waited until this moment, so this dispatch belongs to their interval.
        self.compare();
        if let Some(tenant) = self.tenants.get_mut(call.tenant) {
            tenant.waiting -= 1;
        }
        self.compare();
    }

    pub(super) fn produced(&mut self, call: &Call, tokens: f64) {
        if let Some(tenant) = self.tenants.get_mut(call.tenant) {
            tenant.served += tokens;
        }
    }

    pub(super) fn ended(&mut self, call: &Call) {
        self.in_flight -= call.cost();
        let Some(tenant) = self.tenants.get_mut(call.tenant) else { return };
        tenant.error -= (call.estimate - call.cost()).abs();
        if self.corrected {
            tenant.charged += call.cost() - call.estimate;
        }
    }

    pub(super) fn busy(&mut self, now: Duration, running: usize) {
        let (since, held) = self.last;
        self.slots_held += now.saturating_sub(since).as_secs_f64() * held as f64;
        self.last = (now, running);
    }

    /// Ends the records at `horizon` (the time since the start of the run). Each call that still
    /// waits is recorded with its wait so far.
    pub(super) fn close(&mut self, horizon: Duration) {
        self.busy(horizon, 0);
        for tenant in &mut self.tenants {
            let left = tenant.arrivals.iter().map(|at| horizon.saturating_sub(*at).as_secs_f64());
            tenant.waits.extend(left);
        }
        let begun: Vec<f64> = self.tenants.iter().map(|tenant| tenant.begun).collect();
        self.share_error = error(&begun, &self.gps.served());
    }

    fn turn_window(&mut self) {
        let begun: Vec<f64> = self.tenants.iter().map(|tenant| tenant.begun).collect();
        let since = |now: &[f64], then: &[f64]| {
            now.iter().zip(then).map(|(now, then)| now - then).collect::<Vec<_>>()
        };
        let found = error(&since(&begun, &self.window.begun), &since(&self.gps.served(), &self.window.ideal));
        if found.is_finite() {
            self.window_error = self.window_error.max(found);
        }
        self.window = Window { ends: self.window.ends + WINDOW, begun, ideal: self.gps.served() };
    }

    /// Updates the gaps of each pair of tenants. Must be called after each change of the tokens
    /// that a tenant has received, or of its number of waiting calls.
    pub(super) fn compare(&mut self) {
        for pair in &mut self.pairs {
            let get = |number: usize| Some((self.tenants.get(number)?, self.weights.get(number)?));
            let (Some((one, w)), Some((other, v))) = (get(pair.one), get(pair.other)) else { continue };
            if one.waiting == 0 || other.waiting == 0 {
                (pair.charged.now, pair.served.now) = (None, None);
                continue;
            }
            pair.charged.see(one.charged / w - other.charged / v);
            pair.served.see(one.served / w - other.served / v);
        }
    }

    /// Returns the highest ratio of a charged gap to its bound, over all pairs of tenants. The
    /// ratio is at most 1 if the bound holds.
    ///
    /// The bound is the sum of the two tenants' largest charges of one call, each divided by the
    /// tenant's weight. If charges are corrected when calls end, the estimation errors of the calls
    /// in flight are added.
    pub(super) fn charged_gap(&self) -> f64 {
        self.worst(|pair, one, w, other, v| {
            let wrong = if self.corrected { one.most_error / w + other.most_error / v } else { 0.0 };
            pair.charged.most / (one.largest_charge / w + other.largest_charge / v + wrong)
        })
    }

    /// Returns the highest ratio of a served gap to its bound, over all pairs of tenants. The
    /// ratio is at most 1 if the bound holds.
    ///
    /// The bound is the sum of two terms. The first is the bound of the virtual token counter
    /// (VTC): twice the larger of the longest input and the most tokens in flight, divided by the
    /// lower weight. The second is, summed over the two tenants, the highest sum of the estimation
    /// errors of the tenant's calls in flight, divided by the tenant's weight.
    pub(super) fn served_gap(&self) -> f64 {
        let tokens = 2.0 * self.longest_input.max(self.most_in_flight);
        self.worst(|pair, one, w, other, v| {
            pair.served.most / (tokens / w.min(v) + one.most_error / w + other.most_error / v)
        })
    }

    fn worst(&self, ratio: impl Fn(&Pair, &Tenant, f64, &Tenant, f64) -> f64) -> f64 {
        let all = self.pairs.iter().filter_map(|pair| {
            let (one, other) = (self.tenants.get(pair.one)?, self.tenants.get(pair.other)?);
            Some(ratio(pair, one, *self.weights.get(pair.one)?, other, *self.weights.get(pair.other)?))
        });
        all.filter(|ratio| !ratio.is_nan()).fold(0.0, f64::max)
    }

    pub(super) fn tenant(&self, number: usize) -> Tenant {
        self.tenants.get(number).cloned().unwrap_or_default()
    }

    /// Returns the share of the slots' total time up to `horizon` in which they were used by calls,
    /// from 0 to 1.
    pub(super) fn utilisation(&self, slots: usize, horizon: Duration) -> f64 {
        self.slots_held / (slots as f64 * horizon.as_secs_f64())
    }
}

/// Returns the largest difference, over the tenants, between the real and the ideal amount, as a
/// share of the total of the real amounts.
fn error(real: &[f64], ideal: &[f64]) -> f64 {
    let total: f64 = real.iter().sum();
    real.iter().zip(ideal).map(|(real, ideal)| (real - ideal).abs()).fold(0.0, f64::max) / total
}
