//! Estimates quantiles from Prometheus histograms, for snapshots.

use prometheus::Histogram;
use prometheus::core::Metric;
use serde::Serialize;

/// The count, the mean and two quantiles of a set of measured times, in seconds. The quantiles are
/// estimates: they are interpolated linearly between the bounds of histogram buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Number of measured times.
    pub count: u64,
    /// Arithmetic mean, in seconds. `None` if nothing was measured.
    pub mean: Option<f64>,
    /// Median, in seconds. `None` if nothing was measured.
    pub p50: Option<f64>,
    /// 99th percentile, in seconds. `None` if nothing was measured.
    pub p99: Option<f64>,
}

impl Quantiles {
    /// Returns count, mean and quantiles of the values of all these histograms together. The
    /// histograms must have the same buckets.
    pub(crate) fn from_histograms<'a>(histograms: impl IntoIterator<Item = &'a Histogram>) -> Self {
        let mut cumulative: Vec<(f64, u64)> = Vec::new();
        let (mut count, mut sum) = (0, 0.0);
        for metric in histograms.into_iter().map(Histogram::metric) {
            let histogram = metric.get_histogram();
            count += histogram.get_sample_count();
            sum += histogram.get_sample_sum();
            for (i, bucket) in histogram.get_bucket().iter().enumerate() {
                match cumulative.get_mut(i) {
                    Some((_, total)) => *total += bucket.cumulative_count(),
                    None => cumulative.push((bucket.upper_bound(), bucket.cumulative_count())),
                }
            }
        }
        if count == 0 {
            return Self::default();
        }
        let at = |share: f64| Some(quantile(&cumulative, count, share));
        Self { count, mean: Some(sum / count as f64), p50: at(0.5), p99: at(0.99) }
    }
}

/// Returns the estimated quantile at `share` (0 to 1) of `count` values. `cumulative` contains, for
/// each bucket in ascending order, its upper bound and the number of values up to that bound.
/// Values above the last bound count as equal to it.
fn quantile(cumulative: &[(f64, u64)], count: u64, share: f64) -> f64 {
    let rank = share * count as f64;
    let (mut lower, mut below) = (0.0, 0);
    for &(upper, total) in cumulative {
        if total as f64 >= rank && total > below {
            return lower + (upper - lower) * (rank - below as f64) / (total - below) as f64;
        }
        (lower, below) = (upper, total);
    }
    // Values beyond the last bound have no upper bound of their own.
    lower
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolates_inside_a_bucket() {
        let buckets = [(1.0, 50), (2.0, 100)];
        assert_eq!(quantile(&buckets, 100, 0.5), 1.0);
        assert_eq!(quantile(&buckets, 100, 0.75), 1.5);
        assert_eq!(quantile(&buckets, 200, 0.99), 2.0, "beyond the last bound");
    }
}
