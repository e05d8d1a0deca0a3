//! The figures of the sweeps of one scenario, over all seeds.

use tidegate_sim::scenario::quantile;

use super::comparison::Verdict;

/// The figures of one scenario, over all seeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// The median, over the seeds, of the goodput with the suggested configuration, divided by that
    /// of the best stable cap. A cap is stable if at most 1 % of attempts fail with it and the
    /// client is not overloaded.
    pub(crate) ratio: f64,
    /// The tenth percentile, over the seeds, of the ratio whose median is `ratio`.
    pub(crate) ratio_p10: f64,
    /// The share of the answers, from 0 to 1, with which more than 1 % of attempts fail or the
    /// client is overloaded.
    pub(crate) infeasible: f64,
    /// The share of the answers, from 0 to 1, that name the correct binding limit (the limit that
    /// determines the best cap).
    pub(crate) class_right: f64,
    /// The share of the answers, from 0 to 1, whose interval contains the true cap: the smallest
    /// stable cap within 2 % of the best goodput.
    pub(crate) covers: f64,
    /// The median number of calls of a sweep.
    pub(crate) calls: f64,
    /// The 90th percentile of the number of calls of a sweep.
    pub(crate) calls_p90: f64,
    /// The median duration of a sweep, in seconds of virtual time.
    pub(crate) seconds: f64,
}

impl Figures {
    pub(crate) fn of(verdicts: &[Verdict]) -> Self {
        let at = |of: fn(&Verdict) -> f64, q: f64| {
            let mut values: Vec<f64> = verdicts.iter().map(of).collect();
            quantile(&mut values, q)
        };
        let share = |of: fn(&Verdict) -> bool| {
            verdicts.iter().filter(|verdict| of(verdict)).count() as f64 / verdicts.len().max(1) as f64
        };
        Self {
            ratio: at(|verdict| verdict.ratio, 0.5),
            ratio_p10: at(|verdict| verdict.ratio, 0.1),
            infeasible: share(|verdict| verdict.infeasible),
            class_right: share(|verdict| verdict.class_right),
            covers: share(|verdict| verdict.covers),
            calls: at(|verdict| verdict.calls as f64, 0.5),
            calls_p90: at(|verdict| verdict.calls as f64, 0.9),
            seconds: at(|verdict| verdict.seconds, 0.5),
        }
    }

    pub(crate) fn line(&self) -> String {
        format!(
            "ratio {:.3} (p10 {:.3}), infeasible {:.0} %, class {:.0} %, covers {:.0} %, calls {:.0} (p90 {:.0}), {:.0} s",
            self.ratio,
            self.ratio_p10,
            100.0 * self.infeasible,
            100.0 * self.class_right,
            100.0 * self.covers,
            self.calls,
            self.calls_p90,
            self.seconds
        )
    }
}
