//! Checks that the measurement is valid, such as the work-conserving and the stability check.

use std::collections::BTreeMap;

use crate::observation::{AttemptObservation, BlockedBy, CallObservation, LoadSample};
use crate::outcome::{CallOutcomes, Check, CheckResult};
use crate::result::{StepResult, StepVerdict, SweepAnswer};
use crate::search::{SearchAction, SearchSettings};

/// Minimum number of calls of a step whose means are compared.
const MIN_CALLS: usize = 30;
/// Minimum share of the cap that must be in flight while calls wait.
const MIN_CAP_SHARE: f64 = 0.95;
/// Maximum relative difference between two figures that should be equal.
const MAX_DIFFERENCE: f64 = 0.1;
/// Timer delay, in seconds, above which the machine was evidently busy with other work.
const MAX_LAG_S: f64 = 0.5;

/// Sums over each step, updated by events.
#[derive(Debug, Default)]
pub(crate) struct StepTally {
    steps: BTreeMap<usize, StepSums>,
    now: Option<usize>,
    last: Option<LoadSample>,
    completed: usize,
    failed: usize,
}

#[derive(Debug, Default)]
struct StepSums {
    cap: usize,
    began: f64,
    ended: f64,
    attempts: usize,
    failures: usize,
    calls: usize,
    completed: usize,
    ends: CallOutcomes,
    slot_seconds: f64,
    input: u64,
    output: u64,
    counted: usize,
    /// Seconds in which calls waited and only the cap limited them; the shares of the cap in
    /// flight, times those seconds; and those of the seconds in which slots were free.
    pressed: f64,
    pressed_slots: f64,
    gap: f64,
    slots: f64,
    cpu: f64,
    cpu_seconds: f64,
    lag: f64,
}

impl StepTally {
    pub(crate) fn moved(&mut self, next: &SearchAction, now: f64) {
        self.last = None;
        self.now = match next {
            SearchAction::Hold { step, cap, .. } => {
                self.steps
                    .insert(*step, StepSums { cap: *cap, began: now, ended: now, ..StepSums::default() });
                Some(*step)
            }
            SearchAction::Rest { .. } | SearchAction::Done => None,
        };
    }

    pub(crate) fn attempt(&mut self, seen: &AttemptObservation) {
        self.failed += usize::from(seen.failure.is_some());
        let Some(sums) = self.now.and_then(|step| self.steps.get_mut(&step)) else { return };
        sums.attempts += 1;
        sums.failures += usize::from(seen.failure.is_some());
    }

    pub(crate) fn call(&mut self, seen: &CallObservation) {
        self.completed += usize::from(seen.failure.is_none());
        let Some(sums) = self.steps.get_mut(&seen.step) else { return };
        sums.calls += 1;
        sums.completed += usize::from(seen.failure.is_none());
        match &seen.failure {
            None if seen.attempts > 1 => sums.ends.retried += 1,
            None => sums.ends.first_try += 1,
            Some(failure) => *sums.ends.failed.entry(failure.cause).or_default() += 1,
        }
        sums.slot_seconds += seen.slot_seconds;
        if seen.counted && seen.failure.is_none() {
            sums.counted += 1;
            sums.input += seen.input_tokens;
            sums.output += seen.output_tokens;
        }
    }

    pub(crate) fn pulse(&mut self, pulse: &LoadSample) {
        let last = self.last.replace(*pulse);
        let Some(sums) = self.now.and_then(|step| self.steps.get_mut(&step)) else { return };
        sums.ended = pulse.at;
        sums.lag = sums.lag.max(pulse.client_lag);
        let Some(last) = last else { return };
        let time = (pulse.at - last.at).max(0.0);
        sums.slots += time * last.in_flight as f64;
        if let Some(cpu) = pulse.client_cpu {
            sums.cpu += cpu * time;
            sums.cpu_seconds += time;
        }
        let free = last.in_flight < last.cap;
        let forbidden = free && !matches!(last.held_by, None | Some(BlockedBy::Nothing));
        if last.waiting > 0 && !forbidden {
            sums.pressed += time;
            sums.pressed_slots += time * last.in_flight.min(last.cap) as f64 / last.cap.max(1) as f64;
            sums.gap += if free { time } else { 0.0 };
        }
    }

    /// Returns the outcomes of the calls of each step.
    pub(crate) fn ends(&self) -> Vec<CallOutcomes> {
        self.steps.iter().map(|(step, sums)| CallOutcomes { step: *step, ..sums.ends.clone() }).collect()
    }

    /// Returns the number of calls answered completely and of attempts failed so far.
    pub(crate) fn so_far(&self) -> (usize, usize) {
        (self.completed, self.failed)
    }

    /// Computes all checks. `cached` is the share of input tokens from a cache, and `given` tells
    /// whether the prompts are the user's own.
    pub(crate) fn checks(
        &self,
        answer: &SweepAnswer,
        steps: &[StepResult],
        settings: &SearchSettings,
        cached: f64,
        given: bool,
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
            mix(&valid, cached, given),
        ]
    }

    fn client(&self, steps: &[StepResult]) -> Check {
        let invalid = steps.iter().filter(|step| matches!(step.verdict, StepVerdict::Invalid(_))).count();
        let lag = self.steps.values().map(|sums| sums.lag).fold(0.0, f64::max);
        let cpu = self
            .steps
            .values()
            .filter(|sums| sums.cpu_seconds > 0.0)
            .map(|sums| sums.cpu / sums.cpu_seconds)
            .reduce(f64::max);
        let cpu = cpu.map_or_else(
            || "CPU usage was not measured".to_owned(),
            |cpu| format!("at most {:.0} % CPU usage in a step", 100.0 * cpu),
        );
        let told = format!(
            "this client: {cpu}, timers at most {:.0} ms late; in {invalid} of {} steps the cap was not kept busy",
            1e3 * lag,
            steps.len()
        );
        let told = if lag > MAX_LAG_S {
            format!("{told}; other work on this machine affected the measurement")
        } else {
            told
        };
        check("client", if steps.is_empty() { None } else { Some(invalid == 0 && lag <= MAX_LAG_S) }, told)
    }
}

fn check(name: &str, passed: Option<bool>, told: String) -> Check {
    let passed = match passed {
        Some(true) => CheckResult::Yes,
        Some(false) => CheckResult::No,
        None => CheckResult::Unknown,
    };
    Check { name: name.to_owned(), passed, told }
}

fn work_conserving(steps: &[(&StepResult, &StepSums)]) -> Check {
    let near = |sums: &StepSums| sums.pressed_slots / sums.pressed;
    // A step that was rejected at once only shows how its cap was filled.
    let long = steps
        .iter()
        .filter(|(step, sums)| step.calls > 1 && sums.pressed > 0.0 && sums.calls >= MIN_CALLS)
        .map(|(_, sums)| *sums);
    let worst = long.min_by(|a, b| near(a).total_cmp(&near(b)));
    let Some(worst) = worst else {
        return check("work_conserving", None, "calls never waited only for a slot".to_owned());
    };
    let told = format!(
        "while calls waited and no rate limit or cool-down applied, {:.1} % of the cap was in flight in the worst step (cap {}); slots were free for {:.1} % of that time",
        100.0 * near(worst),
        worst.cap,
        100.0 * worst.gap / worst.pressed
    );
    check("work_conserving", Some(near(worst) >= MIN_CAP_SHARE), told)
}

/// Returns the share of failed attempts over the steps with a matching cap, and the number of
/// attempts, or `None` if there are too few.
fn failing(steps: &[(&StepResult, &StepSums)], which: impl Fn(usize) -> bool) -> Option<(f64, usize)> {
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
    let Some((at, _)) = failing(steps, |c| c == cap) else {
        return check("stability", None, format!("fewer than {MIN_CALLS} attempts were made at cap {cap}"));
    };
    let above = failing(steps, |c| c > cap)
        .map_or_else(String::new, |(share, _)| format!(", {:.2} % above it", 100.0 * share));
    let told = format!("{:.2} % of attempts failed and were retried at cap {cap}{above}", 100.0 * at);
    check("stability", Some(at <= settings.too_many), told)
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

/// Checks Little's law: calls in flight equal calls per second times seconds per call.
fn littles_law(steps: &[(&StepResult, &StepSums)]) -> Check {
    let (mut worst, mut looked_at) = (None::<(f64, usize)>, 0);
    for (step, sums) in steps {
        let time = sums.ended - sums.began;
        // A step that is short compared with its calls shows waves of completions, not a rate.
        let mean = sums.slot_seconds / sums.calls.max(1) as f64;
        if sums.calls < MIN_CALLS || time < 5.0 * mean || sums.slots <= 0.0 {
            continue;
        }
        looked_at += 1;
        let apart = (sums.slot_seconds / sums.slots - 1.0).abs();
        if worst.is_none_or(|(most, _)| apart > most) {
            worst = Some((apart, step.cap));
        }
    }
    match worst {
        Some((apart, cap)) => {
            // Calls in flight at the edges of a step are counted on one side only. The difference
            // is in the order of one call time over the length of the step.
            let told = format!(
                "calls in flight and rate times call time differ by at most {:.1} %, at cap {cap}, over {looked_at} steps",
                100.0 * apart
            );
            check("littles_law", Some(apart <= 2.0 * MAX_DIFFERENCE), told)
        }
        None => check(
            "littles_law",
            None,
            format!("no step had {MIN_CALLS} calls and was five times as long as a call"),
        ),
    }
}

fn mix(steps: &[(&StepResult, &StepSums)], cached: f64, given: bool) -> Check {
    let means: Vec<f64> = steps
        .iter()
        .filter(|(_, sums)| sums.counted >= MIN_CALLS)
        .map(|(_, sums)| (sums.input + sums.output) as f64 / sums.counted as f64)
        .collect();
    let (Some(least), Some(most)) =
        (means.iter().copied().reduce(f64::min), means.iter().copied().reduce(f64::max))
    else {
        return check("mix", None, "too few calls have token counts from the server".to_owned());
    };
    let apart = if least > 0.0 { most / least - 1.0 } else { 0.0 };
    let why = if given && cached > 0.05 {
        "; your own prompts repeat in every step, so later steps look faster than they are"
    } else {
        ""
    };
    let told = format!(
        "the mean tokens per call differ by {:.1} % between steps; {:.1} % of the input came from a cache{why}",
        100.0 * apart,
        100.0 * cached
    );
    check("mix", Some(apart <= MAX_DIFFERENCE && cached <= 0.05), told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Purpose;

    /// Returns the sums of a step of one minute in which `in_flight` of ten slots were held while
    /// calls waited.
    fn held(in_flight: usize, held_by: Option<BlockedBy>) -> StepSums {
        let mut tally = StepTally::default();
        tally.moved(&SearchAction::Hold { step: 0, cap: 10, purpose: Purpose::Ramp }, 0.0);
        for at in 0..=60 {
            tally.pulse(&LoadSample {
                at: f64::from(at),
                cap: 10,
                in_flight,
                waiting: 8,
                held_by,
                client_cpu: Some(0.5),
                client_lag: 0.001,
                engine: None,
            });
        }
        for work in 0..60 {
            tally.call(&CallObservation {
                work,
                step: 0,
                queued_at: 0.0,
                admitted_at: 0.0,
                ended_at: 10.0,
                slot_seconds: 10.0,
                attempts: 1,
                ttft: None,
                tpot: None,
                longest_pause: None,
                input_tokens: 10,
                output_tokens: 10,
                counted: true,
                failure: None,
            });
        }
        tally.steps.remove(&0).unwrap()
    }

    fn step() -> StepResult {
        StepResult {
            step: 0,
            cap: 10,
            purpose: Purpose::Ramp,
            began: 0.0,
            ended: 60.0,
            warm_up: 0,
            calls: 60,
            attempts: 60,
            failures: BTreeMap::new(),
            verdict: StepVerdict::Accepted,
            throughput: None,
            goodput: None,
            latency: Default::default(),
            ttft: Default::default(),
            tpot: Default::default(),
            in_flight: 10.0,
            gap_fraction: 0.0,
            forbidden: 0.0,
        }
    }

    #[test]
    fn free_slots_while_calls_wait_fail_the_work_conserving_check() {
        for (in_flight, held_by, passed) in [
            (10, None, CheckResult::Yes),
            (6, Some(BlockedBy::Nothing), CheckResult::No),
            // A rate limit kept the slots free: this is not a fault, and leaves nothing to check.
            (6, Some(BlockedBy::Tokens), CheckResult::Unknown),
        ] {
            assert_eq!(
                work_conserving(&[(&step(), &held(in_flight, held_by))]).passed,
                passed,
                "{in_flight}"
            );
        }
    }

    #[test]
    fn work_conserving_check_ignores_steps_rejected_at_once() {
        let rejected = StepResult { calls: 0, verdict: StepVerdict::Rejected("all".into()), ..step() };
        assert_eq!(work_conserving(&[(&rejected, &held(6, None))]).passed, CheckResult::Unknown);
    }

    #[test]
    fn client_check_fails_after_a_machine_stall() {
        for (lag, passed) in [(0.02, CheckResult::Yes), (0.9, CheckResult::No)] {
            let tally =
                StepTally { steps: [(0, StepSums { lag, ..held(10, None) })].into(), ..StepTally::default() };
            assert_eq!(tally.client(&[step()]).passed, passed, "{lag}");
        }
    }

    #[test]
    fn littles_law_check_compares_slots_with_rate_times_time() {
        // 60 calls of 10 s in 60 s are ten in flight.
        assert_eq!(littles_law(&[(&step(), &held(10, None))]).passed, CheckResult::Yes);
        assert_eq!(littles_law(&[(&step(), &held(5, None))]).passed, CheckResult::No);
    }

    #[test]
    fn mix_check_fails_if_the_server_cached_prompts() {
        let sums = held(10, None);
        assert_eq!(mix(&[(&step(), &sums)], 0.0, true).passed, CheckResult::Yes);
        let check = mix(&[(&step(), &sums)], 0.4, true);
        assert!(check.passed == CheckResult::No && check.told.contains("your own prompts"), "{check:?}");
    }
}
