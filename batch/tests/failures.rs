//! Tests runs whose server fails, in virtual time.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::Ordering;

use support::{answer, answer_with, config, lines, max_tokens, never, numbered, options, paused, play};
use tidegate::{Error, ErrorKind};
use tidegate_batch::{AnsweredLines, Batch, BatchEnd, BatchOptions, Ceilings, LineOutcome, RunError};

/// An error that OpenRouter sends with status 200.
const ERROR_502: &str = r#"{"error":{"code":502,"message":"the model is not available"}}"#;

#[test]
fn error_with_status_200_is_a_failure() {
    paused(async {
        let (transport, requests) = numbered(|_| Ok(answer_with(200, ERROR_502)));
        let batch = Batch::over(config(|target| target), transport).unwrap();
        let result = play(&batch, options(), lines(0..1), AnsweredLines::default(), never()).await;
        assert_eq!((result.progress().good, result.progress().failed), (0, 1));
        let record = &result.records[0];
        let LineOutcome::Answered(response) = &record.outcome else { panic!("{record:?}") };
        assert_eq!((response.status, response.body.get()), (502, ERROR_502));
        assert!(!record.outcome.is_good());
        assert_eq!(requests.load(Ordering::Relaxed), 3, "such an error may pass");

        let result = play(&batch, options(), lines(0..100), AnsweredLines::default(), never()).await;
        let error = result.ran.unwrap_err();
        assert!(
            matches!(&error, RunError::TooManyFailures { count: 20, last } if last.starts_with("502 ")),
            "{error}"
        );
        assert!(result.records.is_empty());
    });
}

#[test]
fn line_is_sent_again_after_an_error_with_status_200_that_may_pass() {
    const ERROR_400: &str = r#"{"error":{"code":400,"message":"no such parameter"}}"#;
    for (error, expected) in [(ERROR_502, (1, 0, 2)), (ERROR_400, (0, 1, 1))] {
        paused(async {
            let (transport, requests) =
                numbered(move |number| Ok(if number == 0 { answer_with(200, error) } else { answer(200) }));
            let batch = Batch::over(config(|target| target), transport).unwrap();
            let result = play(&batch, options(), lines(0..1), AnsweredLines::default(), never()).await;
            let progress = result.progress();
            let requests = requests.load(Ordering::Relaxed);
            assert_eq!((progress.good, progress.failed, requests), expected, "{error}");
        });
    }
}

#[test]
fn retries_of_the_gate_count_towards_the_ceilings() {
    let text = lines(0..1);
    let one = max_tokens(&text);
    for (tokens, expected) in [(one, 1), (2 * one, 2), (3 * one - 1, 2)] {
        paused(async {
            let (transport, requests) = numbered(|_| Err(Error::new(ErrorKind::Transport, "reset")));
            let batch = Batch::over(config(|target| target), transport).unwrap();
            let options =
                BatchOptions { ceilings: Ceilings { money: None, tokens: Some(tokens) }, ..options() };
            let result = play(&batch, options, text.clone(), AnsweredLines::default(), never()).await;
            let (progress, requests) = (result.progress(), requests.load(Ordering::Relaxed));
            assert_eq!((progress.ended, result.records.len()), (Some(BatchEnd::Ceiling), 0));
            assert_eq!(requests, expected, "{tokens} tokens");
            assert_eq!(progress.spend.input + progress.spend.output, u64::from(requests) * one);
        });
    }
}

#[test]
fn requests_that_were_not_executed_do_not_count_towards_the_ceilings() {
    let text = lines(0..1);
    let one = max_tokens(&text);
    paused(async {
        let (transport, requests) = numbered(|number| match number {
            0 => Err(Error::new(ErrorKind::Connect, "refused")),
            1 => Ok(answer(503)),
            2 => Ok(answer(429)),
            3 => Ok(answer(500)),
            _ => Ok(answer(200)),
        });
        let batch = Batch::over(config(|target| target), transport).unwrap();
        let options = BatchOptions { ceilings: Ceilings { money: None, tokens: Some(one) }, ..options() };
        let result = play(&batch, options, text.clone(), AnsweredLines::default(), never()).await;
        let progress = result.progress();
        assert_eq!((progress.ended, progress.good), (Some(BatchEnd::Complete), 1));
        assert_eq!(requests.load(Ordering::Relaxed), 5);
        assert_eq!(progress.spend.input + progress.spend.output, one);
    });
}
