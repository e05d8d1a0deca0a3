//! How many calls a replica may have, beside the others, before what it remembers no longer counts.
//!
//! `max(1.25 mean, mean + 2 sqrt(mean))` in calls, our own and others'. A plain ratio would fire on Poisson noise alone 18 % of the time where calls
//! are few; with the root it is 2 %. Never below one: where nothing runs anywhere, a call may go anywhere.

/// The most calls of a replica whose share of all would be `mean`, the one that is to be placed included.
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
