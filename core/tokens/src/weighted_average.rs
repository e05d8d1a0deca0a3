//! Weighted averages in which older observations count less.

/// The factor by which each observation multiplies the weight of the earlier ones. The weight
/// halves with each 138 observations.
pub(super) const DECAY: f64 = 1.0 - 1.0 / 200.0;

/// The [`Average::count`] from which a cold prior has no weight (see [`own_weight`]). It is just
/// below the count after eight observations, which is 7.86 because [`DECAY`] reduces the older
/// ones.
pub(super) const WARM_COUNT: f64 = 7.8;

/// The number of observations at which the average of a class or tenant has the same weight as its
/// prior, the average of the model or class that it belongs to.
const SHRINKAGE: f64 = 5.0;

/// Returns the weight, from 0 to 1, of an average of `count` observations. Its prior, the estimate
/// without these observations, has the rest of the weight.
///
/// A cold prior is a default, and its weight falls to 0 after eight observations. A prior that was
/// learned, such as the average of a tenant's model, has a weight that approaches 0 but never
/// reaches it.
pub(super) fn own_weight(count: f64, prior_is_cold: bool) -> f64 {
    if prior_is_cold {
        (count / WARM_COUNT).min(1.0)
    } else {
        count * count / (count * count + SHRINKAGE * SHRINKAGE)
    }
}

/// The ratio of a sum of values to a sum of weights. In both sums, each term is multiplied by
/// [`DECAY`] for each later one. If all weights are 1, the ratio is the mean of the values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Average {
    /// The number of observations, each multiplied by [`DECAY`] for each later one.
    pub(super) count: f64,
    sum: f64,
    weight: f64,
}

impl Average {
    /// Adds an observation. `value` and `weight` are finite and not negative.
    pub(super) fn learn(&mut self, value: f64, weight: f64) {
        self.count = self.count * DECAY + 1.0;
        self.sum = self.sum * DECAY + value;
        self.weight = self.weight * DECAY + weight;
    }

    /// Returns the weighted mean of this average and of `prior`; see [`own_weight`]. Returns
    /// `prior` if nothing was observed.
    pub(super) fn blended_with(&self, prior: f64, prior_is_cold: bool) -> f64 {
        if self.weight <= 0.0 {
            return prior;
        }
        let own_weight = own_weight(self.count, prior_is_cold);
        own_weight * (self.sum / self.weight) + (1.0 - own_weight) * prior
    }
}
