//! Checks whether a measurement is valid: for example, whether all slots of the cap were in use
//! while calls waited.

use std::collections::BTreeMap;

use crate::observation::{AttemptObservation, BlockedBy, CallObservation, LoadSample};
use crate::search::{SearchAction, SearchSettings};
use crate::search_result::{FULL_USE_SHARE, StepResult, StepVerdict, SweepAnswer};
use crate::sweep_outcome::{CallOutcomes, Check, CheckResult};

/// Number of calls or attempts below which a check has the result [`CheckResult::Unknown`].
const MIN_CALLS: usize = 30;
/// The check `work_conserving` considers a step only if calls waited just for a slot for more than
/// this share of its time.
const MIN_LIMITED_SHARE: f64 = 0.05;
/// The check `mix` fails if the mean of the input and output tokens per call differs by more than
/// this share between two steps. The check `littles_law` allows a difference of twice this share.
const MAX_DIFFERENCE: f64 = 0.1;
/// Timer delay in seconds above which the check `client` fails, because other work on this machine
/// has affected the measurement.
const MAX_LAG_S: f64 = 0.5;

/// Mean share of the CPU time of this machine in use from which on its CPU counts as saturated.
const SATURATED_CPU: f64 = 0.9;

/// Sums over the events of each step of a sweep, from which the checks are computed.
#[derive(Debug, Default)]
pub(crate) struct StepTally {
    steps: BTreeMap<usize, StepSums>,
    current_step: Option<usize>,
    last_sample: Option<LoadSample>,
    completed: usize,
    failed: usize,
}

#[derive(Debug, Default)]
struct StepSums {
    cap: usize,
    /// Time of the decision for this step, in seconds since the sweep began.
    decided: f64,
    /// Time from which on the step is measured, in seconds since the sweep began: when the calls of
    /// an earlier, higher cap had ended.
    began: f64,
    ended: f64,
    attempts: usize,
    failures: usize,
    calls: usize,
    completed: usize,
    outcomes: CallOutcomes,
    slot_seconds: f64,
    input: u64,
    output: u64,
    counted: usize,
    /// Seconds in which calls waited and only the cap could limit them: either all slots were in
    /// use, or nothing kept the first waiting call from a free slot.
    cap_limited_s: f64,
    /// Integral of the share of the cap in use (0 to 1) over the time that `cap_limited_s` counts,
    /// in seconds.
    cap_limited_share_s: f64,
    /// Part of `cap_limited_s` in which slots were free, in seconds.
    gap_s: f64,
    /// Integral of the number of slots in use over the time of the step, in slot-seconds.
    slot_s: f64,
    /// Seconds of CPU time that all programs of this machine used, divided by the number of CPUs.
    machine_busy_s: f64,
    /// Seconds of CPU time that this process used, divided by the number of CPUs.
    cpu_busy_s: f64,
    /// Seconds in which the CPU usage was measured.
    cpu_measured_s: f64,
    /// Largest timer delay of the step, in seconds.
    lag: f64,
}

impl StepTally {
    pub(crate) fn on_action(&mut self, next: &SearchAction, now: f64) {
        self.last_sample = None;
        self.current_step = match next {
            SearchAction::Measure { step, cap, .. } => {
                let sums =
                    StepSums { cap: *cap, decided: now, began: now, ended: now, ..StepSums::default() };
                self.steps.insert(*step, sums);
                Some(*step)
            }
            SearchAction::Rest { .. } | SearchAction::Done => None,
        };
    }

    pub(crate) fn on_attempt(&mut self, seen: &AttemptObservation) {
        self.failed += usize::from(seen.failure.is_some());
        let Some(sums) = self.current_step.and_then(|step| self.steps.get_mut(&step)) else { return };
        // An attempt of an earlier step that ends late shows nothing about this cap.
        if seen.sent_at < sums.decided {
            return;
        }
        sums.attempts += 1;
        sums.failures += usize::from(seen.failure.is_some());
    }

    pub(crate) fn on_call(&mut self, seen: &CallObservation) {
        self.completed += usize::from(seen.failure.is_none());
        self.add_slot_seconds(seen);
        let Some(sums) = self.steps.get_mut(&seen.step) else { return };
        sums.calls += 1;
        sums.completed += usize::from(seen.failure.is_none());
        match &seen.failure {
            None if seen.attempts > 1 => sums.outcomes.retried += 1,
            None => sums.outcomes.first_try += 1,
            Some(failure) => *sums.outcomes.failed.entry(failure.cause).or_default() += 1,
        }
        if seen.counted && seen.failure.is_none() {
            sums.counted += 1;
            sums.input += seen.input_tokens;
            sums.output += seen.output_tokens;
        }
    }

    /// Divides the slot time of a call among the steps during which the call was in flight.
    fn add_slot_seconds(&mut self, seen: &CallObservation) {
        let duration = (seen.ended_at - seen.admitted_at).max(f64::MIN_POSITIVE);
        for (step, sums) in &mut self.steps {
            let ended = if self.current_step == Some(*step) { f64::INFINITY } else { sums.ended };
            let overlap = seen.ended_at.min(ended) - seen.admitted_at.max(sums.began);
            sums.slot_seconds += seen.slot_seconds * overlap.max(0.0) / duration;
        }
    }

    pub(crate) fn on_load_sample(&mut self, sample: &LoadSample) {
        let last = self.last_sample.replace(*sample);
        let Some(sums) = self.current_step.and_then(|step| self.steps.get_mut(&step)) else { return };
        sums.ended = sample.at;
        sums.lag = sums.lag.max(sample.client_lag);
        let Some(last) = last else { return };
        // Calls of an earlier, higher cap are still ending.
        if last.in_flight > last.cap {
            sums.began = sample.at;
            return;
        }
        let time = (sample.at - last.at).max(0.0);
        sums.slot_s += time * last.in_flight as f64;
        if let Some(cpu) = sample.client_cpu {
            sums.cpu_busy_s += cpu * time;
            sums.machine_busy_s += sample.machine_cpu.unwrap_or(0.0) * time;
            sums.cpu_measured_s += time;
        }
        let free = last.in_flight < last.cap;
        let is_blocked = free && !matches!(last.held_by, None | Some(BlockedBy::Nothing));
        if last.waiting > 0 && !is_blocked {
            sums.cap_limited_s += time;
            sums.cap_limited_share_s += time * last.in_flight.min(last.cap) as f64 / last.cap.max(1) as f64;
            sums.gap_s += if free { time } else { 0.0 };
        }
    }

    /// Returns the numbers of calls of each step by how they ended, in the order of the steps.
    pub(crate) fn call_outcomes(&self) -> Vec<CallOutcomes> {
        self.steps.iter().map(|(step, sums)| CallOutcomes { step: *step, ..sums.outcomes.clone() }).collect()
    }

    /// Returns two totals over the sweep: the number of completely answered calls, and the number
    /// of failed attempts.
    pub(crate) fn totals(&self) -> (usize, usize) {
        (self.completed, self.failed)
    }

    /// Returns the mean shares of the CPU time of this machine that all programs and that this
    /// process used, 0 to 1. Returns `None` if they were not measured.
    fn machine_cpu(&self) -> Option<(f64, f64)> {
        let sum = |of: fn(&StepSums) -> f64| self.steps.values().map(of).sum::<f64>();
        let (machine, own, time) =
            (sum(|sums| sums.machine_busy_s), sum(|sums| sums.cpu_busy_s), sum(|sums| sums.cpu_measured_s));
        (machine > 0.0 && time > 0.0).then(|| (machine / time, own / time))
    }

    /// Returns a remark that the CPU of this machine was saturated, or `None` if it was not.
    pub(crate) fn saturation_note(&self) -> Option<String> {
        let (machine, own) = self.machine_cpu().filter(|(machine, _)| *machine >= SATURATED_CPU)?;
        Some(format!(
            "The CPU of this machine was {:.0} % busy, {:.0} % by this client: other programs slow this client, and the server if it runs here.",
            100.0 * machine,
            100.0 * own
        ))
    }

    /// Returns the results of all checks for the steps of a finished search. `cached` is the share
    /// of input tokens, 0 to 1, that the server read from its cache. `user_prompts` states whether
    /// the prompts come from a file of the user.
    pub(crate) fn checks(
        &self,
        answer: &SweepAnswer,
        steps: &[StepResult],
        settings: &SearchSettings,
        cached: f64,
        user_prompts: bool,
    ) -> Vec<Check> {
        let valid: Vec<(&StepResult, &StepSums)> = steps
            .iter()
            .filter(|step| !matches!(step.verdict, StepVerdict::Invalid(_)))
            .filter_map(|step| Some((step, self.steps.get(&step.step)?)))
            .collect();
        vec![
            work_conserving(&valid),
            stability(&valid, answer, settings),
            success(&valid, answer, settings),
            littles_law(&valid),
            self.client(steps),
            mix(&valid, cached, user_prompts),
        ]
    }

    fn client(&self, steps: &[StepResult]) -> Check {
        let invalid = steps.iter().filter(|step| matches!(step.verdict, StepVerdict::Invalid(_))).count();
        let lag = self.steps.values().map(|sums| sums.lag).fold(0.0, f64::max);
        let cpu = self
            .steps
            .values()
            .filter(|sums| sums.cpu_measured_s > 0.0)
            .map(|sums| sums.cpu_busy_s / sums.cpu_measured_s)
            .reduce(f64::max);
        let cpu = cpu.map_or_else(
            || "CPU usage was not measured".to_owned(),
            |cpu| format!("at most {:.0} % CPU usage in a step", 100.0 * cpu),
        );
        let machine = self.machine_cpu().map_or_else(String::new, |(machine, own)| {
            format!(
                "; this machine's CPU was {:.0} % busy, {:.0} % by this client",
                100.0 * machine,
                100.0 * own
            )
        });
        let finding = format!(
            "this client: {cpu}{machine}, timers at most {:.0} ms late; in {invalid} of {} steps the cap was not kept busy",
            1e3 * lag,
            steps.len()
        );
        let finding = if lag > MAX_LAG_S {
            format!("{finding}; other work on this machine affected the measurement")
        } else {
            finding
        };
        check("client", if steps.is_empty() { None } else { Some(invalid == 0 && lag <= MAX_LAG_S) }, finding)
    }
}

fn check(name: &str, passed: Option<bool>, finding: String) -> Check {
    let passed = match passed {
        Some(true) => CheckResult::Yes,
        Some(false) => CheckResult::No,
        None => CheckResult::Unknown,
    };
    Check { name: name.to_owned(), passed, finding }
}

fn work_conserving(steps: &[(&StepResult, &StepSums)]) -> Check {
    let used_share = |sums: &StepSums| sums.cap_limited_share_s / sums.cap_limited_s;
    // A step that was rejected at once only shows how its cap was filled.
    let long = steps
        .iter()
        .filter(|(step, sums)| step.calls > 1 && sums.calls >= MIN_CALLS)
        .filter(|(_, sums)| sums.cap_limited_s > MIN_LIMITED_SHARE * (sums.ended - sums.began))
        .map(|(_, sums)| *sums);
    let worst = long.min_by(|a, b| used_share(a).total_cmp(&used_share(b)));
    let Some(worst) = worst else {
        return check("work_conserving", None, "calls hardly ever waited only for a slot".to_owned());
    };
    let finding = format!(
        "while calls waited and no rate limit or cool-down applied, {:.1} % of the cap was in flight in the worst step (cap {}); slots were free for {:.1} % of that time",
        100.0 * used_share(worst),
        worst.cap,
        100.0 * worst.gap_s / worst.cap_limited_s
    );
    check("work_conserving", Some(used_share(worst) >= FULL_USE_SHARE), finding)
}

/// Returns the share of failed attempts, 0 to 1, and the number of attempts over the steps whose
/// cap satisfies `which`. Returns `None` with fewer than [`MIN_CALLS`] attempts.
fn failure_share(steps: &[(&StepResult, &StepSums)], which: impl Fn(usize) -> bool) -> Option<(f64, usize)> {
    let (failures, attempts) = steps
        .iter()
        .filter(|(step, _)| which(step.cap))
        .fold((0, 0), |(failures, attempts), (_, sums)| (failures + sums.failures, attempts + sums.attempts));
    (attempts >= MIN_CALLS).then(|| (failures as f64 / attempts as f64, attempts))
}

fn stability(steps: &[(&StepResult, &StepSums)], answer: &SweepAnswer, settings: &SearchSettings) -> Check {
    let Some(cap) = answer.cap else {
        return check("stability", None, "there is no answer".to_owned());
    };
    let Some((at, _)) = failure_share(steps, |c| c == cap) else {
        return check("stability", None, format!("fewer than {MIN_CALLS} attempts were made at cap {cap}"));
    };
    let above = failure_share(steps, |c| c > cap)
        .map_or_else(String::new, |(share, _)| format!(", {:.2} % above it", 100.0 * share));
    let finding = format!("{:.2} % of attempts failed at cap {cap}{above}", 100.0 * at);
    check("stability", Some(at <= settings.too_many), finding)
}

fn success(steps: &[(&StepResult, &StepSums)], answer: &SweepAnswer, settings: &SearchSettings) -> Check {
    let Some(cap) = answer.cap else {
        return check("success", None, "there is no answer".to_owned());
    };
    let share = |which: &dyn Fn(usize) -> bool| {
        let of = steps.iter().filter(|(step, _)| which(step.cap));
        let (completed, calls) =
            of.fold((0, 0), |(done, all), (_, sums)| (done + sums.completed, all + sums.calls));
        (calls >= MIN_CALLS).then(|| completed as f64 / calls as f64)
    };
    let (at, below) = (share(&|c| c == cap), share(&|c| c < cap));
    let Some(at) = at else {
        return check("success", None, format!("fewer than {MIN_CALLS} calls ended at cap {cap}"));
    };
    let least = below.unwrap_or(1.0) - settings.too_many;
    let below = below.map_or_else(String::new, |below| format!(", {:.2} % below it", 100.0 * below));
    check(
        "success",
        Some(at >= least),
        format!("{:.2} % of calls were answered at cap {cap}{below}", 100.0 * at),
    )
}

/// Checks Little's law: the mean number of calls in flight must equal calls per second times
/// seconds per call, with a tolerance of twice [`MAX_DIFFERENCE`]. Considers steps with at least
/// [`MIN_CALLS`] calls that last at least five times as long as a mean call.
fn littles_law(steps: &[(&StepResult, &StepSums)]) -> Check {
    let (mut worst, mut checked_steps) = (None::<(f64, usize)>, 0);
    for (step, sums) in steps {
        let time = sums.ended - sums.began;
        // A step that is short compared with its calls shows waves of completions, not a rate.
        let mean = sums.slot_seconds / sums.calls.max(1) as f64;
        if sums.calls < MIN_CALLS || time < 5.0 * mean || sums.slot_s <= 0.0 {
            continue;
        }
        checked_steps += 1;
        let difference = (sums.slot_seconds / sums.slot_s - 1.0).abs();
        if worst.is_none_or(|(max, _)| difference > max) {
            worst = Some((difference, step.cap));
        }
    }
    match worst {
        Some((difference, cap)) => {
            // Calls in flight at the edges of a step are counted on one side only. The difference
            // is in the order of one call time over the length of the step.
            let finding = format!(
                "calls in flight and rate times call time differ by at most {:.1} %, at cap {cap}, over {checked_steps} steps",
                100.0 * difference
            );
            check("littles_law", Some(difference <= 2.0 * MAX_DIFFERENCE), finding)
        }
        None => check(
            "littles_law",
            None,
            format!("no step had {MIN_CALLS} calls and was five times as long as a call"),
        ),
    }
}

fn mix(steps: &[(&StepResult, &StepSums)], cached: f64, user_prompts: bool) -> Check {
    let means: Vec<f64> = steps
        .iter()
        .filter(|(_, sums)| sums.counted >= MIN_CALLS)
        .map(|(_, sums)| (sums.input + sums.output) as f64 / sums.counted as f64)
        .collect();
    let (Some(min), Some(max)) =
        (means.iter().copied().reduce(f64::min), means.iter().copied().reduce(f64::max))
    else {
        return check("mix", None, "too few calls have token counts from the server".to_owned());
    };
    let difference = if min > 0.0 { max / min - 1.0 } else { 0.0 };
    let why = if user_prompts && cached > 0.05 {
        "; your own prompts repeat in every step, so later steps look faster than they are"
    } else {
        ""
    };
    let finding = format!(
        "the mean tokens per call differ by {:.1} % between steps; {:.1} % of the input came from a cache{why}",
        100.0 * difference,
        100.0 * cached
    );
    check("mix", Some(difference <= MAX_DIFFERENCE && cached <= 0.05), finding)
}

#[cfg(test)]
mod tests;
