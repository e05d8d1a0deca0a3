//! The load bound: the number of calls above which a replica is excluded whatever it has cached.
//!
//! The bound is `max(1.25 mean, mean + 2 sqrt(mean))` calls, of all clients. A plain ratio would
//! exclude replicas because of Poisson noise in 18 % of the cases when calls are few; with the
//! square root it is 2 %. It is never below one, so that a call may go anywhere in an idle pool.

/// Returns the bound for a replica whose share of all calls would be `mean`, including the new
/// call.
pub(super) fn most(mean: f64) -> f64 {
    (1.25 * mean).max(mean + 2.0 * mean.sqrt()).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::most;

    #[test]
    fn a_quarter_more_where_calls_are_many_and_noise_where_they_are_few() {
        assert_eq!(most(0.125), 1.0);
        assert_eq!(most(1.0), 3.0);
        assert_eq!(most(4.0), 8.0);
        assert_eq!(most(64.0), 80.0);
        assert_eq!(most(400.0), 500.0);
    }
}
