//! What is asked.

use fastrand::Rng;

use crate::lengths::{Traces, Work, log_normal};

/// Lengths of prompts and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    /// Azure's conversations.
    Conv,
    /// One of those, one of Azure's code completions, in turns: all of one tenant, so that what can be learned is a mixture.
    Mixed,
    /// Short prompts and long answers with a heavy tail: log-normal, medians 200 and 400, the mean answer nearly twice its median.
    Tail,
}

impl Workload {
    pub(super) const ALL: [Self; 3] = [Self::Conv, Self::Mixed, Self::Tail];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Conv => "conv",
            Self::Mixed => "conv and code",
            Self::Tail => "heavy tail",
        }
    }

    /// So many calls.
    pub(super) fn draw(self, traces: &Traces, seed: u64, calls: usize) -> Vec<Work> {
        let mut rng = Rng::with_seed(seed);
        match self {
            Self::Conv => traces.conversations(&mut rng).take(calls).collect(),
            Self::Mixed => {
                let code: Vec<Work> = traces.code(&mut rng).take(calls).collect();
                traces.conversations(&mut rng).zip(code).flat_map(|(a, b)| [a, b]).take(calls).collect()
            }
            Self::Tail => (0..calls)
                .map(|_| Work {
                    prompt: log_normal(&mut rng, 200.0, 0.8, (8.0, 4_000.0)),
                    output: log_normal(&mut rng, 400.0, 1.2, (8.0, 4_000.0)),
                })
                .collect(),
        }
    }
}
