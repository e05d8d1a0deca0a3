//! Quantiles of durations, of which high percentiles are reported only with enough samples.

use crate::search_result::LatencyQuantiles;

/// Minimum number of samples for a 95th percentile: with this number, the maximum exceeds the true
/// percentile with 95 % probability (`ln(0.05) / ln(0.95)`).
const P95: usize = 59;
/// Minimum number of samples for a 99th percentile: with this number, the maximum exceeds the true
/// percentile with 95 % probability (`ln(0.05) / ln(0.99)`).
const P99: usize = 299;

/// Returns the number, median, 95th and 99th percentile of the finite samples. A percentile is
/// `None` with fewer than [`P95`] or [`P99`] samples.
pub(super) fn compute(samples: impl Iterator<Item = f64>) -> LatencyQuantiles {
    let mut sorted: Vec<f64> = samples.filter(|sample| sample.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let at = |share: f64| sorted.get(((n as f64 * share).ceil() as usize).saturating_sub(1)).copied();
    LatencyQuantiles {
        n,
        p50: at(0.5),
        p95: at(0.95).filter(|_| n >= P95),
        p99: at(0.99).filter(|_| n >= P99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_need_enough_samples() {
        let quantiles = |n: u32| compute((1..=n).map(f64::from));
        assert_eq!(quantiles(0), LatencyQuantiles::default());
        assert_eq!((quantiles(58).p95, quantiles(59).p95), (None, Some(57.0)));
        assert_eq!((quantiles(298).p99, quantiles(299).p99), (None, Some(297.0)));
        assert_eq!(quantiles(4).p50, Some(2.0));
    }
}
