//! Who asks for what, and when: drawn once for a seed, the same for every contender.

use std::time::Duration;

use fastrand::Rng;

use crate::Fallible;
use crate::lengths::{Work, log_normal};
use crate::traces::{Traced, azure};

/// One call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Duration,
    pub(crate) work: Work,
    pub(crate) streams: bool,
    /// How long after it was sent its caller goes away, if it has no token by then.
    pub(crate) leaves: Option<Duration>,
}

/// What calls are like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mix {
    /// Log-normal: median and sigma, of prompts and of answers.
    Lengths { prompt: (f64, f64), output: (f64, f64) },
    /// An Azure trace of 2023: its lengths, in its order, and its pattern of arrivals, stretched to the load.
    Trace(&'static str),
}

/// What calls of a phase are like, besides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Habits {
    /// The share with a prompt of 6,000 to 7,800 tokens.
    pub(crate) long: f64,
    /// The share whose callers go away before their first token.
    pub(crate) leaving: f64,
    /// The share that does not stream.
    pub(crate) whole: f64,
}

impl Habits {
    pub(crate) const PLAIN: Self = Self { long: 0.0, leaving: 0.0, whole: 0.0 };
}

/// Where calls come from: a mix, with the trace read where it is one.
#[derive(Debug)]
pub(crate) enum Source {
    Lengths { prompt: (f64, f64), output: (f64, f64) },
    Trace(Vec<Traced>),
}

/// Longer calls of a trace are left out: no engine here takes them.
const LONGEST: u32 = 8_192;

/// A caller who leaves does so at the latest after so long.
const SOON: f64 = 0.3;

impl Source {
    pub(crate) fn of(mix: Mix) -> Fallible<Self> {
        Ok(match mix {
            Mix::Lengths { prompt, output } => Self::Lengths { prompt, output },
            Mix::Trace(name) => {
                let calls = azure(name)?.into_iter().filter(|call| call.input + call.output <= LONGEST);
                Self::Trace(calls.collect())
            }
        })
    }

    /// What answers have in the mean: all that a gate would know of a call before it.
    pub(crate) fn mean_output(&self) -> u64 {
        match self {
            Self::Lengths { output: (median, sigma), .. } => (median * (sigma * sigma / 2.0).exp()) as u64,
            Self::Trace(calls) => {
                calls.iter().map(|call| u64::from(call.output)).sum::<u64>() / calls.len().max(1) as u64
            }
        }
    }

    /// The calls from one moment to another at so many a second: Poisson, or a piece of the trace with that mean.
    pub(crate) fn draw(
        &self,
        rng: &mut Rng,
        (from, to): (Duration, Duration),
        rate: f64,
        habits: Habits,
    ) -> Vec<Arrival> {
        let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
        match self {
            Self::Lengths { prompt, output } => {
                let mut arrivals = Vec::new();
                let mut at = from;
                loop {
                    at -= (1.0 - rng.f64()).ln() / rate;
                    if at >= to {
                        return arrivals;
                    }
                    let work = Work {
                        prompt: log_normal(rng, prompt.0, prompt.1, (8.0, 5_000.0)),
                        output: log_normal(rng, output.0, output.1, (4.0, 3_000.0)),
                    };
                    arrivals.push(arrival(rng, at, work, habits));
                }
            }
            Self::Trace(calls) => {
                // Begins again where the trace ends, but never inside a piece.
                let wanted = ((rate * (to - from)) as usize).clamp(2, calls.len());
                let first = rng.usize(..=calls.len() - wanted);
                let piece = calls.get(first..first + wanted).unwrap_or_default();
                let (Some(begin), Some(end)) = (piece.first(), piece.last()) else { return Vec::new() };
                let stretch = (to - from) / (end.at - begin.at).max(1e-3);
                piece
                    .iter()
                    .map(|call| {
                        let work = Work { prompt: call.input.max(1), output: call.output.max(1) };
                        arrival(rng, from + (call.at - begin.at) * stretch * 0.9999, work, habits)
                    })
                    .collect()
            }
        }
    }
}

/// As many draws whatever is drawn, so that habits change nothing else.
fn arrival(rng: &mut Rng, at: f64, work: Work, habits: Habits) -> Arrival {
    let [long, length, leaving, patience, whole] = [(); 5].map(|()| rng.f64());
    let prompt = if long < habits.long { 6_000 + (1_800.0 * length) as u32 } else { work.prompt };
    let output = work.output.min(LONGEST - prompt.min(LONGEST - 1));
    Arrival {
        at: Duration::from_secs_f64(at),
        work: Work { prompt, output },
        streams: whole >= habits.whole,
        leaves: (leaving < habits.leaving).then(|| Duration::from_secs_f64(SOON * patience)),
    }
}
