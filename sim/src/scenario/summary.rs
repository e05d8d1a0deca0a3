//! Computes the figures that the blog post reports from the timings of calls.

use std::time::Duration;

/// Timing of one call, as its client saw it. Times are since the start of the run.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallTiming {
    /// Time at which the call was sent.
    pub sent: Duration,
    /// Time of the first token, or `None` if the call got none.
    pub first_token: Option<Duration>,
    /// Time of the last token, or `None` if the call did not finish.
    pub finished: Option<Duration>,
    /// Number of generated tokens.
    pub tokens: u32,
}

/// Figures of one tenant's calls. A median or percentile without any value is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CallSummary {
    /// Number of calls sent.
    pub calls: usize,
    /// Number of calls that never finished.
    pub failures: usize,
    /// Median time from sending a call to its first token, in milliseconds. Calls without a first
    /// token are left out.
    pub ttft_median_ms: f64,
    /// 99th percentile of the time from sending a call to its first token, in milliseconds. A
    /// call without a first token counts as infinitely late.
    pub ttft_p99_ms: f64,
    /// Median, over the finished calls of at least two tokens, of the mean time between two tokens,
    /// in milliseconds.
    pub decode_median_ms: f64,
    /// Maximum number of calls in flight at the same time. A call is in flight from when it is sent
    /// until it finishes.
    pub peak_in_flight: usize,
}

/// Computes the figures of one tenant from its calls.
pub fn summarise(calls: &[CallTiming]) -> CallSummary {
    let mut ttft: Vec<f64> =
        calls.iter().filter_map(|c| Some(ms(c.first_token?.saturating_sub(c.sent)))).collect();
    let failed = calls.iter().filter(|c| c.first_token.is_none()).map(|_| f64::INFINITY);
    let mut ttft_or_infinity: Vec<f64> = ttft.iter().copied().chain(failed).collect();
    let mut decode: Vec<f64> = calls.iter().filter_map(decode_ms).collect();
    CallSummary {
        calls: calls.len(),
        failures: calls.iter().filter(|c| c.finished.is_none()).count(),
        ttft_median_ms: quantile(&mut ttft, 0.5),
        ttft_p99_ms: quantile(&mut ttft_or_infinity, 0.99),
        decode_median_ms: quantile(&mut decode, 0.5),
        peak_in_flight: peak(calls),
    }
}

fn decode_ms(call: &CallTiming) -> Option<f64> {
    let gaps = call.tokens.checked_sub(1).filter(|&gaps| gaps > 0)?;
    Some(ms(call.finished?.saturating_sub(call.first_token?)) / f64::from(gaps))
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Returns the `q` quantile of `values`, interpolated as numpy does by default, and sorts them.
/// Limits `q` to 0 to 1. Returns 0 if there are no values.
pub fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let position = q.clamp(0.0, 1.0) * values.len().saturating_sub(1) as f64;
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    match (values.get(low), values.get(high)) {
        // The difference of two infinite values would not be a number.
        (Some(a), Some(b)) if a == b => *a,
        (Some(a), Some(b)) => a + (b - a) * position.fract(),
        _ => 0.0,
    }
}

fn peak(calls: &[CallTiming]) -> usize {
    // An end at the time of an arrival is counted first.
    let mut edges: Vec<(Duration, i32)> = calls.iter().map(|c| (c.sent, 1)).collect();
    edges.extend(calls.iter().filter_map(|c| Some((c.finished?, -1))));
    edges.sort();
    let mut now = 0i32;
    let mut max = 0i32;
    for (_, change) in edges {
        now += change;
        max = max.max(now);
    }
    usize::try_from(max).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_as_numpy_interpolates() {
        let mut values = [5.0, 1.0, 3.0, 2.0];
        assert_eq!([0.0, 0.5, 0.75, 1.0].map(|q| quantile(&mut values, q)), [1.0, 2.5, 3.5, 5.0]);
        assert_eq!(quantile(&mut [], 0.5), 0.0);
        let mut late = [1.0, f64::INFINITY, f64::INFINITY];
        assert_eq!([0.25, 0.5, 0.75].map(|q| quantile(&mut late, q)), [f64::INFINITY; 3]);
    }

    #[test]
    fn summary_of_a_few_calls() {
        let s = Duration::from_secs;
        let call = |sent, first, end| CallTiming {
            sent: s(sent),
            first_token: Some(s(first)),
            finished: Some(s(end)),
            tokens: 5,
        };
        let lost = CallTiming { sent: s(3), tokens: 5, ..CallTiming::default() };
        let summary = summarise(&[call(0, 1, 5), call(2, 4, 12), call(5, 6, 10), lost]);
        assert_eq!((summary.calls, summary.failures, summary.ttft_median_ms), (4, 1, 1_000.0));
        assert_eq!(summary.ttft_p99_ms, f64::INFINITY);
        assert_eq!(summary.decode_median_ms, 1_000.0);
        // The first call has ended when the third begins, and the lost call never ends.
        assert_eq!(summary.peak_in_flight, 3);
    }
}
