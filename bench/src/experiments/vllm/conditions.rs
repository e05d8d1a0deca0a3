//! The conditions of the runs of an experiment: whether the steps of the servers took as long as
//! configured.

use crate::Fallible;
use crate::report::Report;

/// The bound on the slowness of a run: the time of its steps, divided by the configured time.
/// Slower runs do not count.
const SLOWNESS: f64 = 1.1;
/// Number of times that a run is made, if its steps were too slow, until it counts as invalid.
const TRIES: usize = 3;

/// The conditions of the runs so far.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    runs: usize,
    slow: usize,
    slowness: f64,
    load_average: f64,
}

impl Conditions {
    /// Makes a run, and returns its result. Repeats the run if the steps of the servers were too
    /// slow. `slowness` reads the slowness of a run.
    pub(super) fn repeat_slow<T>(
        &mut self,
        mut play: impl FnMut() -> Fallible<T>,
        slowness: impl Fn(&T) -> f64,
    ) -> Fallible<T> {
        let mut tries = 1;
        loop {
            let run = play()?;
            let (slow, load_average) = (slowness(&run), load_average());
            eprintln!("    step / configured step: {slow:.3}, load average {load_average}");
            if slow <= SLOWNESS || tries == TRIES {
                self.runs += 1;
                self.slow += usize::from(slow > SLOWNESS);
                self.slowness = self.slowness.max(slow);
                self.load_average = self.load_average.max(load_average);
                return Ok(run);
            }
            tries += 1;
        }
    }

    /// Records the conditions of the runs in `report`. `is_real` is `false` for runs of the
    /// simulator.
    ///
    /// # Errors
    ///
    /// Returns an error if a run remained too slow, because the figures are then not valid.
    pub(super) fn finish(&self, report: &mut Report, prefix: &str, is_real: bool) -> Fallible<()> {
        if self.slow > 0 {
            let (slow, runs) = (self.slow, self.runs);
            let problem = format!("{slow} of {runs} runs are invalid: steps took more than {SLOWNESS} times");
            return Err(format!("{problem} as long as configured; leave the machine alone").into());
        }
        report.figure(format!("{prefix}runs"), self.runs);
        if is_real {
            report.figure(format!("{prefix}longest step / configured step"), self.slowness);
            report.figure(format!("{prefix}highest load average"), self.load_average);
        }
        Ok(())
    }
}

/// Returns the mean number of runnable tasks of the machine in the last minute, or NaN if unknown.
pub(super) fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|value| value.parse().ok()).unwrap_or(f64::NAN)
}
