//! Nothing is sent that could break a ceiling: counted where it arrives.

use serde_json::Value;
use tidegate_sim::Faults;
use tidegate_sweep::spend::{Ceiling, Prices};
use tidegate_sweep::{Ceilings, Ended, Options, Sweep};

use crate::upstream::Upstream;
use crate::{options, play, run, sweep};

fn limited() -> Upstream {
    Upstream::new(Faults { concurrency_limit: Some(10), ..Faults::default() })
}

fn within(ceilings: Ceilings) -> Options {
    Options { ceilings, prices: Some(Prices { input: 2.0, output: 10.0 }), ..options() }
}

/// Tokens that the server counted: prompts of four bytes a token, answers as long as they may be.
fn counted(upstream: &Upstream) -> (u64, u64) {
    let (mut input, mut output) = (0, 0);
    for body in upstream.books.bodies.lock().iter() {
        let body: Value = serde_json::from_slice(body).unwrap();
        input += body["messages"][0]["content"].as_str().unwrap().len().div_ceil(4) as u64;
        output += body["max_tokens"].as_u64().unwrap();
    }
    (input, output)
}

#[test]
fn requests_end_at_their_ceiling() {
    for most in [1, 2, 50, 151] {
        let upstream = limited();
        let outcome = sweep(within(Ceilings { calls: Some(most), ..Ceilings::default() }), &upstream);
        assert_eq!(outcome.ended, Ended::Ceiling(Ceiling::Calls));
        assert!(upstream.books.requests() <= most, "{} of {most}", upstream.books.requests());
        assert!(upstream.books.requests() + 12 >= most, "{} of {most}", upstream.books.requests());
    }
}

#[test]
fn tokens_and_money_stay_below_theirs() {
    for most in [500, 5_000, 20_000] {
        let upstream = limited();
        let outcome = sweep(within(Ceilings { tokens: Some(most), ..Ceilings::default() }), &upstream);
        let (input, output) = counted(&upstream);
        assert_eq!(outcome.ended, Ended::Ceiling(Ceiling::Tokens));
        assert!(input + output <= most, "{input} + {output} of {most}");
        assert!(outcome.spend.input_tokens + outcome.spend.output_tokens <= most, "{:?}", outcome.spend);
    }
    let upstream = limited();
    let outcome = sweep(within(Ceilings { cost: Some(0.02), ..Ceilings::default() }), &upstream);
    let (input, output) = counted(&upstream);
    let cost = (2.0 * input as f64 + 10.0 * output as f64) / 1e6;
    assert_eq!(outcome.ended, Ended::Ceiling(Ceiling::Cost));
    assert!(cost <= 0.02 && cost > 0.015, "{cost}");
    assert!(outcome.spend.money.unwrap() <= 0.02);
}

#[test]
fn time_ends_it_to_the_second() {
    let upstream = limited();
    let (outcome, took) = play(async {
        let began = tokio::time::Instant::now();
        let sweep = Sweep::new(within(Ceilings { seconds: Some(3.0), ..Ceilings::default() })).unwrap();
        (run(sweep, &upstream).await.unwrap(), began.elapsed())
    });
    assert_eq!(outcome.ended, Ended::Ceiling(Ceiling::Time));
    assert!(took.as_secs_f64() <= 3.01, "{took:?}");
    assert_eq!(upstream.books.open(), 0);
}

#[test]
fn a_ceiling_below_one_call_sends_none() {
    let upstream = limited();
    let sweep = Sweep::new(within(Ceilings { tokens: Some(20), ..Ceilings::default() })).unwrap();
    let error = play(run(sweep, &upstream)).unwrap_err().to_string();
    assert!(error.contains("--max-tokens"), "{error}");
    assert_eq!(upstream.books.requests(), 0);
}
