//! The calls of a run. They are drawn once per seed, and are the same for every contender.

use std::time::Duration;

use fastrand::Rng;

use crate::Fallible;
use crate::trace_lengths::{Work, log_normal};
use crate::traces::{Traced, azure};

/// A call: its arrival, its lengths, and its caller's behaviour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Duration,
    pub(crate) work: Work,
    pub(crate) streams: bool,
    /// The time after sending at which the caller leaves if there is no token by then. `None` if
    /// the caller stays.
    pub(crate) leaves: Option<Duration>,
}

/// How the lengths and the arrival times of calls are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mix {
    /// Log-normal lengths in tokens: median and sigma of prompts and of answers. Arrivals are
    /// Poisson.
    Lengths { prompt: (f64, f64), output: (f64, f64) },
    /// The Azure trace of this name: its lengths in order, and its arrivals, stretched to the load.
    Trace(&'static str),
}

/// Properties of the calls of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Habits {
    /// Tokens added to each prompt, like the growing context of an agent.
    pub(crate) context: u32,
    /// The share of calls, from 0 to 1, with a prompt of 6,000 to 7,800 tokens.
    pub(crate) long: f64,
    /// The share of calls, from 0 to 1, whose callers leave soon: within 0.3 s after sending, if
    /// there is no token by then.
    pub(crate) leaving: f64,
    /// The share of calls, from 0 to 1, that do not stream.
    pub(crate) whole: f64,
}

impl Habits {
    pub(crate) const PLAIN: Self = Self { context: 0, long: 0.0, leaving: 0.0, whole: 0.0 };
}

/// The half of a trace that calls are drawn from. Constants are chosen on the first half, and
/// figures are reported on the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    /// The half with the earlier calls.
    First,
    Second,
}

/// The last seed that is used to choose constants.
const CHOOSING: u64 = 100;

impl Part {
    /// Returns the half that calls of `seed` are drawn from.
    pub(crate) fn of(seed: u64) -> Self {
        if seed <= CHOOSING { Self::First } else { Self::Second }
    }

    fn cut(self, calls: &[Traced]) -> &[Traced] {
        let middle = calls.last().map_or(0.0, |last| last.at / 2.0);
        let (first, second) = calls.split_at(calls.partition_point(|call| call.at < middle));
        match self {
            Self::Whole => calls,
            Self::First => first,
            Self::Second => second,
        }
    }
}

/// A [`Mix`] whose trace has been read.
#[derive(Debug)]
pub(crate) enum Source {
    Lengths { prompt: (f64, f64), output: (f64, f64) },
    Trace(Vec<Traced>),
}

/// The maximum length of a call, in tokens (prompt and output). Longer calls of a trace are left
/// out, because no engine here accepts them.
const LONGEST: u32 = 8_192;

/// The latest time, in seconds after sending, at which an impatient caller leaves.
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

    /// Returns the mean output in tokens. A gate expects this output of each call.
    pub(crate) fn mean_output(&self) -> u64 {
        match self {
            Self::Lengths { output: (median, sigma), .. } => (median * (sigma * sigma / 2.0).exp()) as u64,
            Self::Trace(calls) => {
                calls.iter().map(|call| u64::from(call.output)).sum::<u64>() / calls.len().max(1) as u64
            }
        }
    }

    /// Draws the calls between two times, at `rate` calls per second. Arrivals are Poisson, or
    /// those of a random piece of the given half of the trace, stretched to the rate.
    pub(crate) fn draw(
        &self,
        rng: &mut Rng,
        (from, to): (Duration, Duration),
        rate: f64,
        habits: Habits,
        part: Part,
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
                let calls = part.cut(calls);
                let count = ((rate * (to - from)) as usize).clamp(2, calls.len());
                let first = rng.usize(..=calls.len() - count);
                let piece = calls.get(first..first + count).unwrap_or_default();
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

/// Creates a call that arrives `at` seconds after the start of the run. The number of random values
/// that it draws is constant, so `habits` do not change other calls.
fn arrival(rng: &mut Rng, at: f64, work: Work, habits: Habits) -> Arrival {
    let [long, length, leaving, patience, whole] = [(); 5].map(|()| rng.f64());
    let prompt = if long < habits.long { 6_000 + (1_800.0 * length) as u32 } else { work.prompt };
    // Limits the prompt so that the model can still answer. Lengths of a trace are kept.
    let prompt = (prompt + habits.context).min(prompt.max(LONGEST - 256));
    let output = work.output.min(LONGEST - prompt.min(LONGEST - 1));
    Arrival {
        at: Duration::from_secs_f64(at),
        work: Work { prompt, output },
        streams: whole >= habits.whole,
        leaves: (leaving < habits.leaving).then(|| Duration::from_secs_f64(SOON * patience)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_a_trace_are_disjoint() {
        let calls: Vec<_> =
            (0..100).map(|k| Traced { at: f64::from(k * k), input: k as u32, output: 1 }).collect();
        let source = Source::Trace(calls);
        let drawn = |part| {
            let span = (Duration::ZERO, Duration::from_secs(10));
            let draw = |seed| source.draw(&mut Rng::with_seed(seed), span, 1.5, Habits::PLAIN, part);
            (0..200).flat_map(draw).map(|arrival| arrival.work.prompt).collect::<Vec<_>>()
        };
        let (first, second) = (drawn(Part::First), drawn(Part::Second));
        // 70 squared is the first past half of 99 squared.
        assert!(first.iter().all(|prompt| *prompt <= 70) && second.iter().all(|prompt| *prompt > 70));
        assert!(first.len() > 1_000 && second.len() > 1_000);
    }
}
