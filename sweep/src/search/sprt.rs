//! A sequential test of the share of failed attempts.
//!
//! Wald's sequential probability ratio test (A. Wald, *Sequential Tests of Statistical Hypotheses*,
//! 1945). If the true share is `fine`, the test returns `TooMany` with a probability of at most
//! about `false_alarm`. If the true share is `too_many`, it returns `Fine` with a probability of at
//! most about `miss`. Between the two shares it may return either. The test depends on two counts
//! only, so the counts of several steps can be added.

/// The test: how much one failed and one successful attempt change the log-likelihood ratio, and
/// the two thresholds of the ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sprt {
    per_failure: f64,
    per_success: f64,
    reject: f64,
    accept: f64,
}

/// What the test has decided about the share of failed attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShareVerdict {
    /// The share is acceptable.
    Fine,
    /// The share is too high.
    TooMany,
    /// No decision yet, because the test needs more attempts.
    Open,
}

impl Sprt {
    /// Returns a test that decides between the shares of failed attempts `fine` and `too_many`.
    /// `false_alarm` is the maximum probability of `TooMany` at the share `fine`, and `miss` that
    /// of `Fine` at the share `too_many`. Clamps the shares into (0, 1) with `too_many` above
    /// `fine`, and the probabilities into (0, 0.5).
    pub(super) fn new(fine: f64, too_many: f64, false_alarm: f64, miss: f64) -> Self {
        let fine = fine.clamp(1e-6, 0.9);
        let too_many = too_many.clamp(fine * 1.01, 0.99);
        let (alarm, miss) = (false_alarm.clamp(1e-9, 0.499), miss.clamp(1e-9, 0.499));
        Self {
            per_failure: (too_many / fine).ln(),
            per_success: ((1.0 - too_many) / (1.0 - fine)).ln(),
            reject: ((1.0 - miss) / alarm).ln(),
            accept: (miss / (1.0 - alarm)).ln(),
        }
    }

    /// Returns the verdict for these numbers of failed and successful attempts.
    pub(super) fn evaluate(&self, failures: usize, successes: usize) -> ShareVerdict {
        let ratio = failures as f64 * self.per_failure + successes as f64 * self.per_success;
        if ratio >= self.reject {
            ShareVerdict::TooMany
        } else if ratio <= self.accept {
            ShareVerdict::Fine
        } else {
            ShareVerdict::Open
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_without_failures_takes_116_attempts() {
        let test = Sprt::new(0.005, 0.03, 0.05, 0.05);
        assert_eq!(test.evaluate(0, 115), ShareVerdict::Open);
        assert_eq!(test.evaluate(0, 116), ShareVerdict::Fine);
        assert_eq!(test.evaluate(2, 0), ShareVerdict::TooMany);
    }

    #[test]
    fn error_rates_are_within_bounds() {
        let errors = |share: f64, wrong: ShareVerdict, seed: u64| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let test = Sprt::new(0.005, 0.03, 0.05, 0.05);
            let wrongs = (0..2_000).filter(|_| {
                let (mut bad, mut good) = (0, 0);
                loop {
                    if rng.f64() < share {
                        bad += 1
                    } else {
                        good += 1
                    }
                    match test.evaluate(bad, good) {
                        ShareVerdict::Open => {}
                        told => break told == wrong,
                    }
                }
            });
            wrongs.count() as f64 / 2_000.0
        };
        assert!(errors(0.005, ShareVerdict::TooMany, 1) < 0.065);
        assert!(errors(0.03, ShareVerdict::Fine, 2) < 0.065);
    }

    #[test]
    fn invalid_shares_are_separated() {
        let test = Sprt::new(0.9, 0.1, 0.0, 1.0);
        assert!(test.per_failure > 0.0 && test.per_success < 0.0);
    }
}
