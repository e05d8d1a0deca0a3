//! The cost of a call as KV-cache memory over time. Fair queueing charges this cost if memory is
//! the bottleneck.

use std::time::Duration;

/// Returns the expected cost of a call in token-seconds: the `input` tokens are held from the
/// start, and one more token for each of the `output` tokens.
///
/// `ttft` is the time to the first token, and `tpot` the time per output token, in seconds. A value
/// that is negative or not finite counts as 0.
pub fn expected_cost(input: u64, output: u64, ttft: f64, tpot: f64) -> f64 {
    let (input, output) = (input as f64, output as f64);
    input * seconds(ttft) + output * seconds(tpot) * (input + output / 2.0)
}

/// Returns the actual cost of an attempt in token-seconds. `to_first_token` and `to_end` are the
/// times from sending the attempt to its first token and to its end.
///
/// If `to_first_token` is `None`, the output counts as growing evenly from the start.
pub fn actual_cost(input: u64, output: u64, to_first_token: Option<Duration>, to_end: Duration) -> f64 {
    let (input, output) = (input as f64, output as f64);
    let first = to_first_token.unwrap_or_default().min(to_end);
    input * first.as_secs_f64() + (to_end - first).as_secs_f64() * (input + output / 2.0)
}

/// Returns `time`, or 0 if it is negative or not finite.
fn seconds(time: f64) -> f64 {
    if time.is_finite() { time.max(0.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the expected cost in token-seconds, summed token by token.
    fn step_by_step(input: u64, output: u64, ttft: f64, tpot: f64) -> f64 {
        // Midway between two tokens, half of the next one counts: the area under a line.
        let decoded: f64 = (0..output).map(|k| (input as f64 + k as f64 + 0.5) * tpot).sum();
        input as f64 * ttft + decoded
    }

    #[test]
    fn cost_is_the_area_under_memory_use() {
        for (input, output) in [(0, 0), (512, 128), (12_000, 1), (1, 4_096)] {
            let (ttft, tpot) = (0.3, 0.05);
            let area = step_by_step(input, output, ttft, tpot);
            assert!((expected_cost(input, output, ttft, tpot) - area).abs() <= 1e-9 * area);
            let end = Duration::from_secs_f64(ttft + tpot * output as f64);
            let was = actual_cost(input, output, Some(Duration::from_secs_f64(ttft)), end);
            assert!((was - area).abs() <= 1e-6 * area, "{was} {area}");
        }
    }

    #[test]
    fn invalid_times_give_finite_costs() {
        for time in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            let cost = expected_cost(u64::MAX, u64::MAX, time, time);
            assert!(cost == 0.0, "{cost}");
        }
        assert!(expected_cost(u64::MAX, u64::MAX, 600.0, 600.0).is_finite());
        // A first token after the end, by clocks that disagree.
        let held = actual_cost(100, 10, Some(Duration::from_secs(9)), Duration::from_secs(4));
        assert_eq!(held, 400.0);
    }
}
