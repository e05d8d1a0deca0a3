//! Tests batch runs against the simulator, in virtual time.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use support::{
    answer, config, lines, max_tokens, never, numbered, options, paused, play, simulator, sleep, transport,
};
use tidegate::config::{Mode, Retry};
use tidegate::{RequestBody, ResponseBody, Transport};
use tidegate_batch::{
    AnsweredLines, Batch, BatchEnd, BatchOptions, Ceilings, LineOutcome, Lines, Outputs, Prices,
    RequestOverrides, RunError, Stop, WriteJob, write_records,
};
use tidegate_sim::Faults;
use tokio::sync::{mpsc, watch};

fn batch(faults: Faults) -> Batch {
    Batch::over(config(|target| target), transport(&simulator(faults))).unwrap()
}

#[test]
fn every_line_is_answered_once_whatever_the_file_contains() {
    paused(async {
        let mut text = lines(0..50);
        text.push_str("\nnot json\n{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":4}\n");
        text.push_str(&lines(3..4));
        text.push_str("{\"custom_id\":\"lost\",\"url\":\"/v1/chat/completions\",\"body\":{\"model\":\"absent\",\"messages\":[]}}\n");
        text.push_str(&format!("{}\n", "x".repeat(1 << 20 | 1)));
        let result =
            play(&batch(Faults::default()), options(), text, AnsweredLines::default(), never()).await;
        let progress = result.progress();
        assert_eq!((progress.read, progress.good, progress.failed, progress.malformed), (55, 51, 4, 3));
        assert_eq!(progress.ended, Some(BatchEnd::Complete));
        let mut numbers: Vec<_> = result.records.iter().map(|record| record.line).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=50).chain(52..=56).collect::<Vec<_>>());
        let outcomes = |line: u64| {
            let record = result.records.iter().find(|record| record.line == line).unwrap();
            let outcomes = match &record.outcome {
                LineOutcome::Answered(answer) => answer.status.to_string(),
                LineOutcome::Failed(fault) => fault.code.clone(),
            };
            (record.custom_id.clone(), outcomes)
        };
        let outcomes = [52, 53, 54, 55, 56].map(outcomes);
        let outcomes = outcomes.each_ref().map(|(id, what)| (&**id, &**what));
        let expected = [
            ("line-52", "invalid_json_line"),
            ("line-53", "200"),
            ("c3", "duplicate_custom_id"),
            ("lost", "404"),
            ("line-56", "line_too_long"),
        ];
        assert_eq!(outcomes, expected);
        assert!(progress.spend.output >= 50 * 8 && progress.spend.input > 50);
    });
}

#[test]
fn records_are_in_input_order_on_request() {
    paused(async {
        let text: String = (0..300u32)
            .map(|n| format!("{{\"model\":\"sim\",\"max_tokens\":{},\"prompt\":\"x\"}}\n", 1 + n * 37 % 50))
            .collect();
        let ordered = BatchOptions { ordered: true, ..options() };
        let batch = batch(Faults::default());
        let result = play(&batch, ordered, text.clone(), AnsweredLines::default(), never()).await;
        assert!(result.records.iter().map(|record| record.line).eq(1..=300));
        let result = play(&batch, options(), text, AnsweredLines::default(), never()).await;
        assert!(
            !result.records.is_sorted_by_key(|record| record.line),
            "without ordering, records are written as calls end"
        );
    });
}

#[test]
fn long_queues_do_not_fail_and_memory_is_bounded() {
    paused(async {
        let rate = tidegate_sim::faults::TokenRate {
            requests_per_minute: Some(30.0),
            burst_s: 4.0,
            ..Default::default()
        };
        let simulator = simulator(Faults { token_rate: Some(rate), ..Faults::default() });
        // A batch waits where an interactive call would be rejected at once.
        let target = |target: tidegate::config::Target| {
            let second = std::time::Duration::from_secs(1);
            target
                .rpm(30)
                .wait(second)
                .deadline(2 * second)
                .queue(1)
                .on_full(tidegate::config::OnFull::Refuse)
        };
        let batch = Batch::over(config(target), transport(&simulator)).unwrap();
        let mut max_open = 0;
        let (send, feed) = mpsc::channel(1);
        let mut text = Lines::new(std::io::Cursor::new(lines(0..600)), 1 << 20);
        tokio::spawn(async move {
            while let Some(line) = text.next_line().transpose() {
                if send.send(line).await.is_err() {
                    return;
                }
            }
        });
        let (records, mut jobs) = mpsc::channel(1);
        tokio::spawn(async move { while jobs.recv().await.is_some() {} });
        let ran = batch
            .run(options(), AnsweredLines::default(), feed, records, never(), |progress| {
                max_open = max_open.max(progress.open)
            })
            .await;
        let progress = ran.unwrap();
        assert_eq!((progress.good, progress.failed), (600, 0));
        // The burst sends two calls, and each may double the window of 16; one call is in flight.
        assert!(progress.seconds > 1_000.0 && max_open <= 4 * 16 + 1, "{max_open} open at once");
    });
}

#[test]
fn random_failures_are_retried() {
    paused(async {
        let batch = batch(Faults { error_500: 0.3, seed: 3, ..Faults::default() });
        let result = play(&batch, options(), lines(0..500), AnsweredLines::default(), never()).await;
        assert_eq!((result.progress().good, result.progress().failed), (500, 0));
    });
}

#[test]
fn run_without_success_ends_without_writing_records() {
    paused(async {
        let overrides = RequestOverrides { model: Some("absent".into()), path: None };
        let result = play(
            &batch(Faults::default()),
            BatchOptions { overrides, ..options() },
            lines(0..500),
            AnsweredLines::default(),
            never(),
        )
        .await;
        let error = result.ran.unwrap_err();
        assert!(
            matches!(&error, RunError::TooManyFailures { count: 20, last } if last.contains("404")),
            "{error}"
        );
        assert!(result.records.is_empty());
        // Too few lines to blame the provider: the failures are recorded as the lines' own.
        let overrides = RequestOverrides { model: Some("absent".into()), path: None };
        let result = play(
            &batch(Faults::default()),
            BatchOptions { overrides, ..options() },
            lines(0..5),
            AnsweredLines::default(),
            never(),
        )
        .await;
        assert_eq!((result.progress().failed, result.records.len()), (5, 5));
    });
}

#[test]
fn failures_of_lines_do_not_stop_a_run_that_resumes_answered_lines() {
    paused(async {
        let overrides = RequestOverrides { model: Some("absent".into()), path: None };
        let mut found = AnsweredLines::default();
        found.good = 1;
        let options = BatchOptions { overrides, ..options() };
        let result = play(&batch(Faults::default()), options, lines(0..50), found, never()).await;
        assert_eq!((result.progress().failed, result.records.len()), (50, 50));
    });
}

#[test]
fn mode_without_limits_is_rejected() {
    for mode in [Mode::Observe, Mode::Off] {
        let mut config = config(|target| target.cap(2));
        config.mode = mode;
        let error = Batch::over(config, transport(&simulator(Faults::default()))).unwrap_err();
        assert!(error.message().contains("disables gates, but a run needs one"), "{error}");
    }
}

#[test]
fn stop_lets_calls_in_flight_finish() {
    paused(async {
        let batch =
            Batch::over(config(|target| target.cap(4)), transport(&simulator(Faults::default()))).unwrap();
        let stopped = stop_after(0.5);
        let result = play(&batch, options(), lines(0..1_000), AnsweredLines::default(), stopped).await;
        let progress = result.progress();
        assert_eq!(progress.ended, Some(BatchEnd::Stopped));
        assert!(progress.good > 0 && progress.good < 200 && progress.failed == 0, "{progress:?}");
        assert_eq!((result.records.len() as u64, progress.open), (progress.good, 0));
    });
}

#[test]
fn ceiling_is_not_exceeded() {
    paused(async {
        let prices = Prices { input: 1_000.0, output: 2_000.0 };
        let ceilings = Ceilings { money: Some(5.0), tokens: None };
        let options = BatchOptions { prices, ceilings, ..options() };
        let result =
            play(&batch(Faults::default()), options, lines(0..1_000), AnsweredLines::default(), never())
                .await;
        let progress = result.progress();
        assert_eq!((progress.ended, progress.failed), (Some(BatchEnd::Ceiling), 0));
        assert!(progress.spend.money <= 5.0 && progress.spend.money > 4.5, "{progress:?}");
        assert_eq!(progress.good, result.records.len() as u64);
    });
}

/// Returns a transport that answers each request with the status, the headers and the body that
/// `answer` returns for the number in its message, and never if that is `None`.
fn scripted(
    answer: impl Fn(u64) -> Option<http::Response<ResponseBody>> + Clone + Send + Sync + 'static,
) -> Transport {
    Transport::new(tower::service_fn(move |request: http::Request<RequestBody>| {
        let body: Value = serde_json::from_slice(request.body().bytes().unwrap()).unwrap();
        let number = body["messages"][0]["content"].as_str().unwrap().parse().unwrap();
        let answer = answer(number);
        async move {
            match answer {
                Some(answer) => Ok(answer),
                None => std::future::pending().await,
            }
        }
    }))
}

/// Returns a transport whose first `broken` responses break off, and the number of requests that it
/// gets.
fn breaking(broken: u32) -> (Transport, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let count = calls.clone();
    let transport = scripted(move |_| {
        if count.fetch_add(1, Ordering::Relaxed) >= broken {
            return Some(answer(200));
        }
        let error = tidegate::Error::new(tidegate::ErrorKind::Transport, "reset");
        let chunks = [Ok(http_body::Frame::data(bytes::Bytes::from_static(b"{"))), Err(error)];
        let body = http_body_util::StreamBody::new(futures_util::stream::iter(chunks));
        Some(answer(200).map(|_| ResponseBody::new(body)))
    });
    (transport, calls)
}

#[test]
fn broken_response_is_requested_again() {
    paused(async {
        let config = config(|target| target.retry(Retry::new().attempts(1)));
        let (transport, calls) = breaking(2);
        let batch = Batch::over(config, transport).unwrap();
        let result = play(&batch, options(), lines(0..1), AnsweredLines::default(), never()).await;
        assert_eq!((result.progress().good, calls.load(Ordering::Relaxed)), (1, 3));
    });
}

#[test]
fn responses_that_break_off_count_towards_the_ceilings() {
    let text = lines(0..1);
    let one = max_tokens(&text);
    for (tokens, expected) in [
        (4 * one, (BatchEnd::Complete, 3, 1)),
        (2 * one, (BatchEnd::Ceiling, 2, 0)),
        (3 * one - 1, (BatchEnd::Ceiling, 2, 0)),
    ] {
        paused(async {
            let (transport, calls) = breaking(u32::MAX);
            let batch = Batch::over(config(|target| target), transport).unwrap();
            let ceilings = Ceilings { money: None, tokens: Some(tokens) };
            let options = BatchOptions { ceilings, ..options() };
            let result = play(&batch, options, text.clone(), AnsweredLines::default(), never()).await;
            let (progress, calls) = (result.progress(), calls.load(Ordering::Relaxed));
            assert_eq!((progress.ended.unwrap(), calls, result.records.len()), expected, "{tokens} tokens");
            assert_eq!(progress.spend.input + progress.spend.output, u64::from(calls) * one);
        });
    }
}

#[test]
fn ordered_run_that_fails_writes_the_answers_it_has() {
    paused(async {
        let transport = scripted(|number| match number {
            0 => None,
            1..=10 => Some(answer(200)),
            _ => Some(answer(401)),
        });
        let batch = Batch::over(config(|target| target), transport).unwrap();
        let options = BatchOptions { ordered: true, ..options() };
        let result = play(&batch, options, lines(0..500), AnsweredLines::default(), never()).await;
        assert!(matches!(result.ran, Err(RunError::TooManyFailures { count: 20, .. })));
        assert!(result.records.iter().map(|record| record.line).eq(2..=11));
    });
}

/// Returns a stop that is requested after this time.
fn stop_after(seconds: f64) -> watch::Receiver<Stop> {
    stops([(seconds, Stop::Finish)].into())
}

/// Returns the stops that are requested one after the other, each after its time.
fn stops(requests: Vec<(f64, Stop)>) -> watch::Receiver<Stop> {
    let (send, stopped) = watch::channel(Stop::No);
    tokio::spawn(async move {
        for (seconds, stop) in requests {
            sleep(seconds).await;
            send.send(stop).unwrap();
        }
        std::future::pending::<()>().await
    });
    stopped
}

#[test]
fn stop_sends_no_queued_calls() {
    paused(async {
        let simulator = simulator(Faults::default());
        let batch = Batch::over(config(|target| target.rpm(30)), transport(&simulator)).unwrap();
        let result = play(&batch, options(), lines(0..500), AnsweredLines::default(), stop_after(5.0)).await;
        assert_eq!(result.progress().ended, Some(BatchEnd::Stopped));
        assert!(result.seconds < 7.0, "{} s", result.seconds);
        assert!(!result.records.is_empty());
        assert_eq!(result.records.len(), simulator.stats().attempts.len());
    });
}

#[test]
fn stop_does_not_wait_for_retries() {
    paused(async {
        let busy = scripted(|_| {
            let mut response = answer(429);
            response.headers_mut().insert("retry-after", http::HeaderValue::from_static("3600"));
            Some(response)
        });
        let batch = Batch::over(config(|target| target), busy).unwrap();
        let result = play(&batch, options(), lines(0..3), AnsweredLines::default(), stop_after(5.0)).await;
        // The input was read to its end, but its lines were not answered.
        assert_eq!(result.progress().ended, Some(BatchEnd::Stopped));
        assert!(result.seconds < 6.0 && result.records.is_empty(), "{} s", result.seconds);

        // An ordered run writes the answers behind a line that waits for its retry.
        let failing = scripted(|number| Some(answer(if number == 0 { 503 } else { 200 })));
        let batch = Batch::over(config(|target| target), failing).unwrap();
        let options = BatchOptions { ordered: true, ..options() };
        let result = play(&batch, options, lines(0..30), AnsweredLines::default(), stop_after(1.0)).await;
        assert_eq!(result.progress().ended, Some(BatchEnd::Stopped));
        assert!(result.records.iter().map(|record| record.line).eq(2..=30), "{:?}", result.records);
    });
}

#[test]
fn cancelled_run_writes_what_was_answered() {
    paused(async {
        for ordered in [false, true] {
            let hanging = scripted(|number| (number > 0).then(|| answer(200)));
            let batch = Batch::over(config(|target| target), hanging).unwrap();
            let options = BatchOptions { ordered, ..options() };
            let stop = stops([(1.0, Stop::Finish), (2.0, Stop::Cancel)].into());
            let result = play(&batch, options, lines(0..30), AnsweredLines::default(), stop).await;
            assert_eq!((result.progress().ended, result.seconds), (Some(BatchEnd::Cancelled), 3.0));
            assert!(result.records.iter().map(|record| record.line).eq(2..=30), "{:?}", result.records);
        }
    });
}

/// If the output file of a run is cut at any position, the next run adds exactly the missing
/// records. Uses real files.
#[test]
fn next_run_completes_a_cut_output() {
    let folder = std::env::temp_dir().join(format!("tidegate-batch-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = lines(0..12);
    for name in ["out.jsonl", "out.jsonl.gz", "out.jsonl.zst"] {
        let outputs = Outputs { records: folder.join(name), errors: None };
        let (mut whole, mut at) = (0, 0);
        loop {
            let (files, found) = outputs.resume(false).unwrap();
            let sink = files.truncate().unwrap();
            let before = found.len();
            let (records, jobs) = mpsc::channel(64);
            let writer = std::thread::spawn(move || write_records(sink, jobs));
            let progress = paused(async {
                let result = play(&batch(Faults::default()), options(), text.clone(), found, never()).await;
                for record in result.records.iter().cloned() {
                    records.send(WriteJob::Record(record)).await.unwrap();
                    records.send(WriteJob::Tick).await.unwrap();
                }
                result.progress()
            });
            drop(records);
            writer.join().unwrap().unwrap();
            assert_eq!((progress.skipped, progress.good), (before, 12 - before), "{name} cut at {at}");
            let file = std::fs::read(&outputs.records).unwrap();
            whole = whole.max(file.len());
            at += 97;
            if at >= whole {
                break;
            }
            std::fs::OpenOptions::new()
                .write(true)
                .open(&outputs.records)
                .unwrap()
                .set_len(at as u64)
                .unwrap();
        }
        let (files, found) = outputs.resume(false).unwrap();
        assert_eq!((found.len(), found.good, found.torn), (12, 12, 0));
        assert!(
            outputs.resume(false).unwrap_err().to_string().contains("another run"),
            "only one run may write to a file"
        );
        drop(files);
        let mut file = std::fs::File::create(&outputs.records).unwrap();
        file.write_all(b"my notes\n").unwrap();
        assert!(outputs.resume(false).is_err() && std::fs::read(&outputs.records).unwrap() == b"my notes\n");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn changed_input_is_an_error() {
    let folder = std::env::temp_dir().join(format!("tidegate-changed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let outputs = Outputs { records: folder.join("out.jsonl"), errors: None };
    let mut sink = outputs.overwrite().unwrap().truncate().unwrap();
    paused(async {
        let result =
            play(&batch(Faults::default()), options(), lines(0..3), AnsweredLines::default(), never()).await;
        result.records.iter().for_each(|record| sink.write_record(record).unwrap());
    });
    sink.finish().unwrap();
    let (_files, found) = outputs.resume(false).unwrap();
    let survey = tidegate_batch::survey(Lines::new(lines(1..4).as_bytes(), 1 << 20), None, &found, None);
    assert!(matches!(survey, Err(RunError::InputChanged(1))));
    let survey = tidegate_batch::survey(Lines::new(lines(0..2).as_bytes(), 1 << 20), None, &found, None);
    assert!(matches!(survey, Err(RunError::InputChanged(3))), "a shorter input has changed too");
    paused(async {
        let result = play(&batch(Faults::default()), options(), lines(1..4), found, never()).await;
        assert!(matches!(result.ran, Err(RunError::InputChanged(1))) && result.records.is_empty());
    });
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Writes the records of an input to output files. Returns the content of both files.
fn written(outputs: &Outputs, text: String) -> [String; 2] {
    let result = paused(play(&batch(Faults::default()), options(), text, AnsweredLines::default(), never()));
    let mut sink = outputs.overwrite().unwrap().truncate().unwrap();
    result.records.iter().for_each(|record| sink.write_record(record).unwrap());
    sink.finish().unwrap();
    contents(outputs)
}

fn contents(outputs: &Outputs) -> [String; 2] {
    [&outputs.records, outputs.errors.as_ref().unwrap()].map(|path| std::fs::read_to_string(path).unwrap())
}

#[test]
fn files_are_unchanged_until_they_are_truncated() {
    let folder = std::env::temp_dir().join(format!("tidegate-unchanged-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let errors = folder.join("errors.jsonl");
    let outputs = Outputs { records: folder.join("out.jsonl"), errors: Some(errors.clone()) };
    let before = written(&outputs, lines(0..3) + "nonsense\n");
    assert_eq!(before.each_ref().map(|text| text.lines().count()), [3, 1]);

    let other_run = Outputs { records: errors.clone(), errors: None }.overwrite().unwrap();
    assert!(outputs.overwrite().unwrap_err().to_string().contains("another run is writing"));
    drop(other_run);
    drop(outputs.overwrite().unwrap());
    let (files, found) = outputs.resume(true).unwrap();
    assert_eq!((found.good, found.failed, contents(&outputs)), (3, 0, before.clone()));
    files.truncate().unwrap();
    assert_eq!(contents(&outputs), [before[0].clone(), String::new()]);
    outputs.overwrite().unwrap().truncate().unwrap();
    assert_eq!(contents(&outputs), [String::new(), String::new()]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn output_given_as_the_errors_file_is_rejected() {
    let folder = std::env::temp_dir().join(format!("tidegate-swapped-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [records, errors] = ["out.jsonl", "errors.jsonl"].map(|name| folder.join(name));
    let outputs = Outputs { records: records.clone(), errors: Some(errors.clone()) };
    let before = written(&outputs, lines(0..3) + "nonsense\n");
    let swapped = Outputs { records: errors, errors: Some(records) };
    for retry_failed in [false, true] {
        let error = swapped.resume(retry_failed).unwrap_err().to_string();
        assert!(error.contains("out.jsonl: contains answers") && error.contains("swap"), "{error}");
        assert!(swapped.answered(retry_failed).is_err());
    }
    assert_eq!(contents(&outputs), before);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn corrected_line_can_be_sent_again_if_its_failure_is_in_the_errors_file() {
    let folder = std::env::temp_dir().join(format!("tidegate-corrected-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let errors = folder.join("errors.jsonl");
    let outputs = Outputs { records: folder.join("out.jsonl"), errors: Some(errors) };
    written(&outputs, lines(0..1) + "nonsense\n");
    let survey = |text: String, retry_failed| {
        let found = outputs.answered(retry_failed).unwrap();
        tidegate_batch::survey(Lines::new(text.as_bytes(), 1 << 20), None, &found, None)
    };
    let error = survey(lines(0..2), false).unwrap_err();
    assert!(matches!(error, RunError::FailedLineChanged(2)), "{error}");
    assert!(error.to_string().contains("--retry-failed"), "{error}");
    assert_eq!(survey(lines(0..2), true).unwrap().done, 1);
    assert!(matches!(survey(lines(1..3), true), Err(RunError::InputChanged(1))));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Pipes and devices are written without being read, truncated, locked or synced.
#[cfg(target_os = "linux")]
#[test]
fn pipes_and_devices_are_written_but_not_resumed() {
    let folder = std::env::temp_dir().join(format!("tidegate-devices-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (null, regular) = (std::path::PathBuf::from("/dev/null"), folder.join("errors.jsonl"));
    let [records, errors] = ["records", "errors"].map(|name| folder.join(name));
    // Not with `mkfifo`: until a child process starts its program, it holds the file locks of other
    // tests.
    for pipe in [&records, &errors] {
        rustix::fs::mkfifoat(rustix::fs::CWD, pipe, rustix::fs::Mode::RWXU).unwrap();
    }
    let result = paused(async {
        let text = lines(0..3) + "nonsense\n";
        play(&batch(Faults::default()), options(), text, AnsweredLines::default(), never()).await
    });

    let readers = [records.clone(), errors.clone()]
        .map(|path| std::thread::spawn(move || std::fs::read_to_string(path).unwrap()));
    let outputs = Outputs { records: records.clone(), errors: Some(errors) };
    let (files, found) = outputs.resume(false).unwrap();
    assert!(found.is_empty());
    let mut sink = files.truncate().unwrap();
    result.records.iter().for_each(|record| sink.write_record(record).unwrap());
    (0..tidegate_batch::SYNC_EVERY).for_each(|_| sink.tick().unwrap());
    sink.finish().unwrap();
    assert_eq!(readers.map(|reader| reader.join().unwrap().lines().count()), [3, 1]);

    let devices = Outputs { records: null.clone(), errors: Some(null.clone()) };
    let mut sinks = [devices.resume(false).unwrap().0, devices.overwrite().unwrap()]
        .map(|files| files.truncate().unwrap());
    for sink in &mut sinks {
        result.records.iter().for_each(|record| sink.write_record(record).unwrap());
    }
    sinks.into_iter().for_each(|sink| sink.finish().unwrap());
    let refused = devices.resume(true).unwrap_err().to_string();
    assert!(refused.contains("/dev/null: is not a regular file"), "{refused}");

    // The answers of the run that wrote the errors file are lost, so it cannot be resumed.
    let mixed = Outputs { records: null, errors: Some(regular.clone()) };
    let mut sink = mixed.resume(false).unwrap().0.truncate().unwrap();
    result.records.iter().for_each(|record| sink.write_record(record).unwrap());
    sink.finish().unwrap();
    for retry_failed in [false, true] {
        let refused = mixed.resume(retry_failed).unwrap_err().to_string();
        assert!(refused.contains("/dev/null: is not") && refused.contains("--overwrite"), "{refused}");
    }
    assert_eq!(std::fs::read_to_string(&regular).unwrap().lines().count(), 1);
    mixed.overwrite().unwrap().truncate().unwrap().finish().unwrap();
    assert!(mixed.resume(false).is_ok(), "an empty errors file belongs to no previous run");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn first_write_to_a_full_device_is_an_error() {
    let full = Outputs { records: "/dev/full".into(), errors: None };
    let result =
        paused(play(&batch(Faults::default()), options(), lines(0..1), AnsweredLines::default(), never()));
    for files in [full.resume(false).unwrap().0, full.overwrite().unwrap()] {
        let mut sink = files.truncate().unwrap();
        sink.write_record(&result.records[0]).unwrap();
        let error = sink.flush().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        assert!(error.to_string().starts_with("/dev/full: "), "{error}");
    }
}

#[test]
fn line_without_a_custom_id_gets_an_unused_name() {
    let bare = r#"{"custom_id":null,"model":"sim","max_tokens":1,"messages":[]}"#;
    let named = |id: &str| bare.replace("null", &format!("\"{id}\""));
    let text = [named("line-2"), bare.to_owned(), named("line-4"), named("line-4"), bare.to_owned()];
    let text = text.map(|line| line + "\n").concat();
    paused(async move {
        let batch = Batch::over(config(|target| target), numbered(|_| Ok(answer(200))).0).unwrap();
        let options = BatchOptions { ordered: true, ..options() };
        let result = play(&batch, options, text, AnsweredLines::default(), never()).await;
        let ids: Vec<_> =
            result.records.iter().map(|record| (&*record.custom_id, record.outcome.is_good())).collect();
        let expected =
            [("line-2", true), ("line-2-2", true), ("line-4", true), ("line-4", false), ("line-5", true)];
        assert_eq!(ids, expected);
    });
}
