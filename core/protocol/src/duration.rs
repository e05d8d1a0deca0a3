//! The upper limit of durations from callers, configurations and providers, and additions of such
//! durations that cannot overflow.
//!
//! `Instant + Duration` panics if the sum cannot be represented. Two rules prevent the panic:
//!
//! - A duration is limited to [`MAX`] where it enters the process. [`from_secs`] converts numbers.
//! - The moment at which such a duration ends is computed by [`after`]. The operator `+` is used
//!   only for durations with a smaller upper limit.

use std::time::{Duration, Instant};

/// The longest duration that is used: ten years of 365 days. Longer durations are reduced to it.
pub const MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Converts seconds to a duration of at most [`MAX`].
///
/// Returns `None` for a number that is negative, infinite or NaN.
///
/// ```
/// use std::time::Duration;
/// use tidegate_protocol::duration;
///
/// assert_eq!(duration::from_secs(1.5), Some(Duration::from_millis(1_500)));
/// assert_eq!(duration::from_secs(1e300), Some(duration::MAX));
/// assert_eq!(duration::from_secs(f64::INFINITY), None);
/// ```
pub fn from_secs(seconds: f64) -> Option<Duration> {
    if !seconds.is_finite() {
        return None;
    }
    Duration::try_from_secs_f64(seconds.min(MAX.as_secs_f64())).ok()
}

/// Returns the moment `duration` after `at`. A duration above [`MAX`] counts as [`MAX`].
///
/// Returns `at` if the clock cannot represent the sum.
pub fn after(at: Instant, duration: Duration) -> Instant {
    at.checked_add(duration.min(MAX)).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::epoch;

    proptest! {
        #[test]
        fn every_number_is_converted_or_rejected(seconds in any::<f64>()) {
            match from_secs(seconds) {
                Some(duration) => {
                    prop_assert!(duration <= MAX && seconds >= 0.0);
                    prop_assert!((duration.as_secs_f64() - seconds).abs() < 1e-6 || duration == MAX);
                }
                None => prop_assert!(!seconds.is_finite() || seconds < 0.0),
            }
        }

        #[test]
        fn every_duration_can_be_added(seconds in any::<u64>(), nanos in 0u32..1_000_000_000) {
            let duration = Duration::new(seconds, nanos);
            let now = epoch();
            prop_assert_eq!(after(now, duration), now + duration.min(MAX));
        }
    }
}
