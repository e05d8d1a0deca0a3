//! From single calls to the post's figures.

use std::time::Duration;

/// One call of one tenant, as its client saw it.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallTiming {
    /// When it was sent.
    pub sent: Duration,
    /// When its first token came.
    pub first_token: Option<Duration>,
    /// When its last token came.
    pub finished: Option<Duration>,
    /// Tokens it generated.
    pub tokens: u32,
}

/// A tenant's row in the post's tables.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CallSummary {
    /// Calls sent.
    pub calls: usize,
    /// Calls that did not finish.
    pub failures: usize,
    /// Median time to first token, milliseconds.
    pub ttft_median_ms: f64,
    /// 99th percentile of it, milliseconds.
    pub ttft_p99_ms: f64,
    /// Median over calls of the mean time between two tokens, milliseconds.
    pub decode_median_ms: f64,
    /// Most calls in flight at once, from sent to finished.
    pub peak_in_flight: usize,
}

/// The figures of a set of calls.
pub fn summarise(calls: &[CallTiming]) -> CallSummary {
    let mut ttft: Vec<f64> =
        calls.iter().filter_map(|c| Some(ms(c.first_token?.saturating_sub(c.sent)))).collect();
    let mut decode: Vec<f64> = calls.iter().filter_map(decode_ms).collect();
    CallSummary {
        calls: calls.len(),
        failures: calls.iter().filter(|c| c.finished.is_none()).count(),
        ttft_median_ms: quantile(&mut ttft, 0.5),
        ttft_p99_ms: quantile(&mut ttft, 0.99),
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

/// The `q` quantile, interpolated between neighbours as numpy does; 0 for no values. Sorts.
pub fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let model_path = q.clamp(0.0, 1.0) * values.len().saturating_sub(1) as f64;
    let (low, high) = (model_path.floor() as usize, model_path.ceil() as usize);
    match (values.get(low), values.get(high)) {
        (Some(a), Some(b)) => a + (b - a) * model_path.fract(),
        _ => 0.0,
    }
}

fn peak(calls: &[CallTiming]) -> usize {
    // An end at the instant of an arrival comes first.
    let mut edges: Vec<(Duration, i32)> = calls.iter().map(|c| (c.sent, 1)).collect();
    edges.extend(calls.iter().filter_map(|c| Some((c.finished?, -1))));
    edges.sort();
    let mut now = 0i32;
    let mut most = 0i32;
    for (_, change) in edges {
        now += change;
        most = most.max(now);
    }
    usize::try_from(most).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_as_numpy_interpolates() {
        let mut values = [5.0, 1.0, 3.0, 2.0];
        assert_eq!([0.0, 0.5, 0.75, 1.0].map(|q| quantile(&mut values, q)), [1.0, 2.5, 3.5, 5.0]);
        assert_eq!(quantile(&mut [], 0.5), 0.0);
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
        assert_eq!(summary.decode_median_ms, 1_000.0);
        // The first has ended when the third comes; the lost one never ends.
        assert_eq!(summary.peak_in_flight, 3);
    }
}
