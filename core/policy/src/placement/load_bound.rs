//! The load bound: the number of calls above which a replica is excluded from the selection,
//! whatever it has cached.
//!
//! The bound is `max(1.25 mean, mean + 2 sqrt(mean))` calls of all clients, where `mean` is the
//! number of all calls in the pool times the replica's share of the total weight. If calls are few,
//! the ratio alone would exclude replicas because of Poisson noise in 18 % of the cases; with the
//! square root, it does in 2 %. The bound is at least one, so that any replica of an idle pool can
//! take a call.

/// Returns the load bound of a replica, in calls of all clients. `mean` is the number of all calls
/// in the pool, including the new call, times the replica's share of the total weight.
pub(super) fn max_calls(mean: f64) -> f64 {
    (1.25 * mean).max(mean + 2.0 * mean.sqrt()).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::max_calls;

    #[test]
    fn bound_is_a_ratio_for_many_calls_and_wider_for_few() {
        assert_eq!(max_calls(0.125), 1.0);
        assert_eq!(max_calls(1.0), 3.0);
        assert_eq!(max_calls(4.0), 8.0);
        assert_eq!(max_calls(64.0), 80.0);
        assert_eq!(max_calls(400.0), 500.0);
    }
}
