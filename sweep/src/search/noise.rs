//! Measures how much repeated steps at the same cap disagree.

use super::evidence::Evidence;

/// Repeated steps disagree if the variance of their throughputs is above this multiple of the
/// variance that their standard errors explain.
const EXPLAINED_FACTOR: f64 = 4.0;
/// Noise, as a share of the throughput, from which on the sweep reports it.
pub(super) const NOTABLE: f64 = 0.05;

impl Evidence {
    /// Returns the noise: the standard deviation of the throughputs of repeated steps at the same
    /// cap, relative to the throughput, without the part that the errors of the steps explain.
    /// Returns 0 if the steps agree, or if no cap was measured twice.
    pub(super) fn noise(&self) -> f64 {
        let work = self.work();
        let mut caps: Vec<usize> = self.accepted().map(|summary| summary.cap).collect();
        caps.sort_unstable();
        caps.dedup();
        let (mut squares, mut explained, mut freedom) = (0.0, 0.0, 0.0);
        for cap in caps {
            let steps: Vec<(f64, f64)> = self
                .accepted()
                .filter(|summary| summary.cap == cap)
                .filter_map(|summary| summary.throughput(work))
                .map(|throughput| (throughput.value.ln(), throughput.relative()))
                .collect();
            let n = steps.len() as f64;
            let mean = steps.iter().map(|step| step.0).sum::<f64>() / n.max(1.0);
            squares += steps.iter().map(|step| (step.0 - mean).powi(2)).sum::<f64>();
            explained +=
                steps.iter().map(|step| step.1.powi(2)).sum::<f64>() * (n - 1.0).max(0.0) / n.max(1.0);
            freedom += (n - 1.0).max(0.0);
        }
        if freedom == 0.0 {
            0.0
        } else {
            ((squares - EXPLAINED_FACTOR * explained) / freedom).max(0.0).sqrt()
        }
    }
}
