//! The oracle of `fairness`: weighted processor sharing of work that can be divided arbitrarily (a
//! fluid).
//!
//! At each moment, each tenant with waiting work is served at a rate in proportion to its weight.
//! The oracle serves as many tokens as the measured server, at the same times. So both have the
//! same total of waiting work, and differ only in its distribution over the tenants.

#[derive(Debug)]
pub(super) struct Gps(Vec<Flow>);

/// The work of one tenant, in tokens: waiting, and served so far.
#[derive(Debug)]
struct Flow {
    weight: f64,
    waiting: f64,
    served: f64,
}

impl Gps {
    pub(super) fn new(weights: &[f64]) -> Self {
        Self(weights.iter().map(|weight| Flow { weight: *weight, waiting: 0.0, served: 0.0 }).collect())
    }

    pub(super) fn arrive(&mut self, tenant: usize, work: f64) {
        if let Some(flow) = self.0.get_mut(tenant) {
            flow.waiting += work;
        }
    }

    /// Serves `work` tokens, shared by weight among the tenants with waiting work. If less work is
    /// waiting, the rest of the capacity is lost.
    pub(super) fn serve(&mut self, mut work: f64) {
        while work > 1e-9 {
            let busy = || self.0.iter().filter(|flow| flow.waiting > 0.0);
            let weight: f64 = busy().map(|flow| flow.weight).sum();
            if weight <= 0.0 {
                return;
            }
            // Up to the level at which the first tenant's work runs out. Then the others share the
            // rest.
            let level = busy().map(|flow| flow.waiting / flow.weight).fold(work / weight, f64::min);
            for flow in self.0.iter_mut().filter(|flow| flow.waiting > 0.0) {
                let share = level * flow.weight;
                let runs_dry = share >= flow.waiting * (1.0 - 1e-12);
                flow.served += if runs_dry { flow.waiting } else { share };
                flow.waiting = if runs_dry { 0.0 } else { flow.waiting - share };
            }
            work -= level * weight;
        }
    }

    /// Returns the tokens served so far, by tenant.
    pub(super) fn served(&self) -> Vec<f64> {
        self.0.iter().map(|flow| flow.served).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_by_weight_and_redistributes_unused_capacity() {
        let mut gps = Gps::new(&[1.0, 2.0, 1.0]);
        for (tenant, work) in [(0, 100.0), (1, 100.0), (2, 10.0)] {
            gps.arrive(tenant, work);
        }
        gps.serve(30.0);
        assert_eq!(gps.served(), [7.5, 15.0, 7.5]);
        // The third tenant has 2.5 left, which takes 10 of the next 40. The rest is shared one to
        // two.
        gps.serve(40.0);
        assert_eq!(gps.served(), [20.0, 40.0, 10.0]);
        gps.serve(1e9);
        assert_eq!(gps.served(), [100.0, 100.0, 10.0]);
    }
}
