//! Tests that a resumed sweep has the same result as an uninterrupted one.

use std::time::Duration;

use serde_json::Value;
use tidegate::config::TargetConfig;
use tidegate_sim::{Faults, Simulator};
use tidegate_sweep::spend::Ceiling;
use tidegate_sweep::{StepVerdict, Sweep, SweepCeilings, SweepEnd, SweepOptions, SweepOutcome};
use tidegate_test_servers::constant_steps;

use crate::upstream::{Upstream, json_response};
use crate::{Directory, options, run, run_paused_seeded, sweep};

fn limited() -> Upstream {
    Upstream::new(Faults { concurrency_limit: Some(10), ..Faults::default() })
}

/// Returns the caps of the steps with their verdicts.
fn steps(outcome: &SweepOutcome) -> Vec<(usize, std::mem::Discriminant<StepVerdict>)> {
    outcome.steps.iter().map(|step| (step.cap, std::mem::discriminant(&step.verdict))).collect()
}

#[test]
fn repeatedly_resumed_sweep_gives_the_same_result() {
    let whole = sweep(options(), &limited());
    let directory = Directory::new("resume");
    let ceilings = |max| SweepCeilings { calls: Some(max), ..SweepCeilings::default() };
    let mut outcome = {
        let first =
            Sweep::new(SweepOptions { ceilings: ceilings(40), ..options() }).unwrap().keep(&directory.0);
        run_paused_seeded(run(first, &limited())).unwrap()
    };
    let mut max = 40;
    while outcome.ended != SweepEnd::Found {
        max += 97;
        let sweep = Sweep::resume(&directory.0, |options| options.ceilings = ceilings(max)).unwrap();
        outcome = run_paused_seeded(run(sweep, &limited())).unwrap();
        assert!(outcome.spend.attempts <= max && max < 5_000, "what was spent before counts");
    }
    assert_eq!(outcome.answer.cap, whole.answer.cap);
    assert_eq!(outcome.answer.binding, whole.answer.binding);
    assert_eq!(steps(&outcome), steps(&whole));
    assert!(outcome.provenance.resumed > 3);
}

#[test]
fn finished_sweep_resumes_without_a_call() {
    let directory = Directory::new("done");
    let first =
        run_paused_seeded(run(Sweep::new(options()).unwrap().keep(&directory.0), &limited())).unwrap();
    let upstream = limited();
    let again = run_paused_seeded(run(Sweep::resume(&directory.0, |_| {}).unwrap(), &upstream)).unwrap();
    assert_eq!((again.ended, upstream.log.requests()), (SweepEnd::Found, 0));
    assert_eq!((&again.answer, &again.steps), (&first.answer, &first.steps));
}

#[test]
fn crash_within_a_line_loses_only_its_step() {
    let directory = Directory::new("crash");
    let first =
        run_paused_seeded(run(Sweep::new(options()).unwrap().keep(&directory.0), &limited())).unwrap();
    let path = directory.0.join("journal.jsonl");
    let text = std::fs::read(&path).unwrap();
    for part in [0.2, 0.5, 0.9] {
        std::fs::write(&path, &text[..(text.len() as f64 * part) as usize]).unwrap();
        let outcome =
            run_paused_seeded(run(Sweep::resume(&directory.0, |_| {}).unwrap(), &limited())).unwrap();
        assert_eq!((outcome.ended, outcome.answer.cap), (SweepEnd::Found, first.answer.cap));
    }
}

#[test]
fn dropped_sweep_keeps_what_its_step_has_spent() {
    let (directory, upstream) = (Directory::new("dropped"), limited());
    let first = Sweep::new(options()).unwrap().keep(&directory.0);
    run_paused_seeded(async {
        let sent = async {
            while upstream.log.requests() < 60 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            _ = run(first, &upstream) => unreachable!(),
            () = sent => {}
        }
    });
    let again = limited();
    let resumed = Sweep::resume(&directory.0, |options| options.ceilings.calls = Some(60)).unwrap();
    let outcome = run_paused_seeded(run(resumed, &again)).unwrap();
    assert_eq!((outcome.ended, again.log.requests()), (SweepEnd::Ceiling(Ceiling::Calls), 0));
}

#[test]
fn journal_states_every_second_of_a_step_what_was_spent() {
    let directory = Directory::new("spend");
    // Each call takes 4 s.
    let slow = Upstream::over(Simulator::new(constant_steps(500.0, Faults::default())).unwrap(), |_, _| None);
    let ceilings = SweepCeilings { seconds: Some(20.0), ..SweepCeilings::default() };
    let sweep = Sweep::new(SweepOptions { ceilings, ..options() }).unwrap().keep(&directory.0);
    run_paused_seeded(run(sweep, &slow)).unwrap();
    let journal = std::fs::read_to_string(directory.0.join("journal.jsonl")).unwrap();
    let lines = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let seconds: Vec<f64> = lines.filter_map(|line| line["spend"]["seconds"].as_f64()).collect();
    // After 16 s, the sweep starts no call, because none could end within its ceiling.
    let until = seconds.partition_point(|&at| at < 16.0);
    let gaps: Vec<f64> = seconds[..until].windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() >= 8 && gaps.iter().all(|gap| *gap < 1.2), "{seconds:?}");
}

#[test]
fn resume_rejects_changed_settings_by_name() {
    let directory = Directory::new("settings");
    run_paused_seeded(run(Sweep::new(options()).unwrap().keep(&directory.0), &limited())).unwrap();
    let error = Sweep::resume(&directory.0, |options| options.seed = 9).unwrap_err().to_string();
    assert!(error.contains("seed"), "{error}");
    let nothing = Directory::new("nothing");
    assert!(Sweep::resume(&nothing.0, |_| {}).is_err());
    // Nothing is overwritten.
    let again = Sweep::new(options()).unwrap().keep(&directory.0);
    let error = run_paused_seeded(run(again, &limited())).unwrap_err().to_string();
    assert!(error.contains("--resume"), "{error}");
}

#[test]
fn query_of_the_url_is_not_stored_but_needed_to_resume() {
    let with_query = "http://h/v1?key=secret";
    let upstream = || {
        Upstream::scripted(Faults::default(), |_, request| match request.uri().query() {
            Some("key=secret") => None,
            _ => json_response(401, r#"{"error": {"code": "invalid_api_key"}}"#),
        })
    };
    let directory = Directory::new("query");
    let ceilings = SweepCeilings { calls: Some(40), ..SweepCeilings::default() };
    let options = SweepOptions { url: with_query.to_owned(), ceilings, ..options() };
    let first = run_paused_seeded(run(Sweep::new(options).unwrap().keep(&directory.0), &upstream())).unwrap();
    assert_eq!(first.ended, SweepEnd::Ceiling(Ceiling::Calls));
    for file in std::fs::read_dir(&directory.0).unwrap() {
        let path = file.unwrap().path();
        assert!(!std::fs::read_to_string(&path).unwrap().contains("secret"), "{}", path.display());
    }
    let resume = |url: Option<&str>| {
        Sweep::resume(&directory.0, |options| {
            options.ceilings.calls = Some(60);
            options.url = url.map_or(options.url.clone(), str::to_owned);
        })
    };
    for (url, expected) in [
        (None, "has a query, which is not stored"),
        (Some("http://h/v1?key=other"), "the query of --url is not the one"),
        (Some("http://other/v1?key=secret"), "url has changed"),
    ] {
        let error = resume(url).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("secret"), "{error}");
    }
    let again = run_paused_seeded(run(resume(Some(with_query)).unwrap(), &upstream())).unwrap();
    assert_eq!(again.ended, SweepEnd::Ceiling(Ceiling::Calls));
    assert!(again.spend.calls > first.spend.calls);
    // Journals of older versions have the whole URL.
    let path = directory.0.join("journal.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, after) = text.split_once("\"query\":").unwrap();
    let older = before.replacen("http://h/v1", with_query, 1) + after.split_once(',').unwrap().1;
    std::fs::write(&path, older).unwrap();
    assert!(resume(None).is_ok());
}

#[test]
fn journal_is_locked_while_a_sweep_uses_it() {
    let directory = Directory::new("locked");
    run_paused_seeded(run(Sweep::new(options()).unwrap().keep(&directory.0), &limited())).unwrap();
    let first = Sweep::resume(&directory.0, |_| {}).unwrap();
    let journal = std::fs::read(directory.0.join("journal.jsonl")).unwrap();
    let error = Sweep::resume(&directory.0, |_| {}).unwrap_err().to_string();
    assert!(error.contains("journal.jsonl: another sweep") && error.contains("wait"), "{error}");
    assert_eq!(std::fs::read(directory.0.join("journal.jsonl")).unwrap(), journal);
    drop(first);
    assert!(Sweep::resume(&directory.0, |_| {}).is_ok());
}

#[test]
fn no_prompt_is_sent_twice_by_a_resumed_or_repeated_sweep() {
    let ceilings = |max| SweepCeilings { calls: Some(max), ..SweepCeilings::default() };
    let mut bodies = Vec::new();
    let mut collect = |sweep| {
        let upstream = limited();
        let outcome = run_paused_seeded(run(sweep, &upstream)).unwrap();
        bodies.append(&mut upstream.log.bodies.lock());
        outcome
    };
    for (name, began) in [("first", "2026-01-01T00:00:00Z"), ("second", "2026-01-01T00:10:00Z")] {
        let directory = Directory::new(name);
        let sweep = Sweep::new(SweepOptions { ceilings: ceilings(60), ..options() }).unwrap();
        collect(sweep.keep(&directory.0).began(began.to_owned()));
        let resumed = Sweep::resume(&directory.0, |options| options.ceilings = ceilings(200)).unwrap();
        assert_eq!(collect(resumed).provenance.resumed, 1);
    }
    let distinct: std::collections::HashSet<_> = bodies.iter().collect();
    assert!(bodies.len() > 200 && distinct.len() == bodies.len(), "{} of {}", distinct.len(), bodies.len());
}

#[test]
fn resume_requires_the_target_that_the_sweep_began_with() {
    let target = |requests_per_minute| {
        let mut target = TargetConfig::new("sim");
        target.rates.rpm = Some(requests_per_minute);
        target.key_env = Some("A_KEY".into());
        target
    };
    let directory = Directory::new("target");
    let options = || SweepOptions {
        ceilings: SweepCeilings { calls: Some(40), ..SweepCeilings::default() },
        ..options()
    };
    let first = Sweep::new(options()).unwrap().target(target(6_000)).unwrap().keep(&directory.0);
    run_paused_seeded(run(first, &limited())).unwrap();
    let resume = |target: Option<TargetConfig>| {
        let upstream = limited();
        let sweep = Sweep::resume(&directory.0, |options| options.ceilings.calls = Some(60)).unwrap();
        let sweep = target.into_iter().fold(sweep, |sweep, target| sweep.target(target).unwrap());
        (run_paused_seeded(run(sweep, &upstream)).map_err(|error| error.to_string()), upstream.log.requests())
    };
    let other_key = TargetConfig { key_env: Some("OTHER_KEY".into()), ..target(6_000) };
    for other in [None, Some(target(600)), Some(other_key)] {
        let (outcome, requests) = resume(other);
        let error = outcome.unwrap_err();
        assert!(error.contains("--config and --target") && requests == 0, "{error}");
    }
    // Settings that a sweep overrides may change.
    let other_cap = TargetConfig { cap: 7, ..target(6_000) };
    assert!(resume(Some(other_cap)).0.is_ok());
    // Journals of older versions do not tell the target.
    let path = directory.0.join("journal.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, after) = text.split_once("\"target\":").unwrap();
    std::fs::write(&path, before.to_owned() + after.split_once(',').unwrap().1).unwrap();
    assert!(resume(None).0.is_ok());
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_leaves_the_result_with_a_note() {
    let directory = Directory::new("full");
    std::fs::create_dir_all(&directory.0).unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.0.join(tidegate_sweep::CALL_LOG_FILE)).unwrap();
    let whole = sweep(options(), &limited());
    let outcome =
        run_paused_seeded(run(Sweep::new(options()).unwrap().keep(&directory.0), &limited())).unwrap();
    assert_eq!((outcome.ended, outcome.answer.cap), (SweepEnd::Found, whole.answer.cap));
    let note = outcome.answer.notes.last().map_or("", String::as_str);
    assert!(note.contains("calls.jsonl: cannot be read or written: No space left"), "{note}");
}
