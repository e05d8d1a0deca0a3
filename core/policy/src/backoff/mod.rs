//! Exponential backoff with full jitter: the delay between two attempts of one call.
//!
//! Full jitter (uniform between zero and the exponential bound) spreads retries best. See
//! "Exponential Backoff And Jitter", AWS Architecture Blog, 2015. The bounds come from the crate
//! `backon`. Its jitter is not used, because it adds to the bound.

use std::time::Duration;

use backon::BackoffBuilder;

/// Returns the upper bound of the delay after the `failures`-th failure of a call, counted from 1:
/// `base * 2^(failures - 1)`, at most `max`.
pub fn bound(base: Duration, max: Duration, failures: u32) -> Duration {
    let skip = failures.saturating_sub(1) as usize;
    backon::ExponentialBuilder::new()
        .with_factor(2.0)
        .with_min_delay(base.min(max))
        .with_max_delay(max)
        .without_max_times()
        .build()
        .nth(skip.min(64))
        .unwrap_or(max)
}

/// Returns the delay `floor + bound * random`. Pass a `random` that is uniform in `[0, 1)`. Values
/// outside of `[0, 1]` are clamped to it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tidegate_policy::backoff;
///
/// let bound = backoff::bound(Duration::from_secs(1), Duration::from_secs(30), 3);
/// assert_eq!(bound, Duration::from_secs(4));
/// assert_eq!(backoff::full_jitter(Duration::ZERO, bound, 0.5), Duration::from_secs(2));
/// ```
pub fn full_jitter(floor: Duration, bound: Duration, random: f64) -> Duration {
    floor.saturating_add(bound.mul_f64(random.clamp(0.0, 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_double_up_to_the_maximum() {
        let bounds: Vec<_> = (1..=6)
            .map(|n| bound(Duration::from_millis(500), Duration::from_secs(4), n).as_millis())
            .collect();
        assert_eq!(bounds, [500, 1000, 2000, 4000, 4000, 4000]);
        assert_eq!(
            bound(Duration::from_millis(500), Duration::from_secs(4), u32::MAX),
            Duration::from_secs(4)
        );
    }

    proptest! {
        #[test]
        fn delay_is_between_floor_and_floor_plus_bound(floor in 0u64..10_000, bound in 0u64..10_000, random in 0.0f64..1.0) {
            let (floor, bound) = (Duration::from_millis(floor), Duration::from_millis(bound));
            let delay = full_jitter(floor, bound, random);
            prop_assert!(delay >= floor && delay <= floor + bound);
        }
    }
}
