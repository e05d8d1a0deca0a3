//! The load bound: the number of calls above which a replica is excluded whatever it has cached.
//!
//! The bound is `max(1.25 mean, mean + 2 sqrt(mean))` calls, of all clients. A plain ratio would
//! exclude replicas because of Poisson noise in 18 % of the cases when calls are few; with the
//! square root it is 2 %. It is never below one, so that a call may go anywhere in an idle pool.

/// Returns the bound for a replica whose share of all calls would be `mean`, including the new
/// call.
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
