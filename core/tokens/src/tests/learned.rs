//! Tests of what the estimator learns from usage reports, and which reports it ignores.

use std::sync::Arc;

use http::{HeaderMap, Method, Uri};
use proptest::prelude::*;

use super::super::*;
use tidegate_protocol::prompt::{MESSAGE_TOKENS, Prompt, Task};
use tidegate_protocol::{RequestFacts, Usage};

pub(super) fn tenant(name: &str) -> Arc<str> {
    name.into()
}

/// Returns a chat call with one message of `bytes` bytes.
pub(super) fn call(bytes: u64, max_tokens: Option<u64>) -> RequestFacts {
    RequestFacts {
        model: Some("m".into()),
        prompt: Some(Prompt { text_bytes: bytes, messages: 1, max_tokens, ..Prompt::default() }),
        task: Task::Text,
        ..RequestFacts::unknown()
    }
}

pub(super) fn usage(input: u64, output: u64) -> Usage {
    Usage { input, output, cached_input: 0 }
}

/// A seeded generator of normal and lognormal noise. A normal number is the sum of twelve uniform
/// numbers, minus 6.
pub(super) struct Noise(pub(super) fastrand::Rng);

impl Noise {
    fn seeded() -> Self {
        Self(fastrand::Rng::with_seed(7))
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.0.f64()).sum::<f64>() - 6.0
    }

    pub(super) fn lognormal(&mut self, median: f64, sigma: f64) -> u64 {
        (median * (sigma * self.normal()).exp()).round().max(1.0) as u64
    }
}

pub(super) fn near(found: f64, wanted: f64, off: f64) -> bool {
    (found / wanted - 1.0).abs() <= off
}

/// The fields of an API that is not known cost nothing at first. The server's reports tell the
/// rest.
#[test]
fn input_of_prompts_in_unknown_fields_is_learned() {
    let mut estimator = Estimator::new();
    let facts = RequestFacts { prompt: Some(Prompt::default()), ..call(0, None) };
    assert_eq!(estimator.demand(&facts, "a").input, 0);
    for _ in 0..8 {
        estimator.learn(&facts, "a", &mut LengthSample::default(), &usage(700, 1));
    }
    assert_eq!(estimator.demand(&facts, "a").input, 700);
    assert_eq!(estimator.demand(&facts, "a").min_input(), 490);
}

#[test]
fn size_of_media_is_not_certain() {
    let prompt = Prompt { text_bytes: 1_000, media: 1, media_tokens: 200_000, ..Prompt::default() };
    let facts = RequestFacts { prompt: Some(prompt), ..call(0, None) };
    let demand = Estimator::new().demand(&facts, "a");
    assert!(near(demand.media as f64, 200_000.0, 1e-4));
    assert_eq!(demand.min_input(), 210);
}

/// A server that adds answers to a list of prompts produces `max_tokens` for each.
#[test]
fn each_prompt_of_a_list_has_an_answer() {
    let mut facts = call(64, Some(100));
    facts.prompt.as_mut().unwrap().completions = 8;
    let mut estimator = Estimator::new();
    for _ in 0..8 {
        estimator.learn(&facts, "a", &mut LengthSample::default(), &usage(100, 400));
    }
    let demand = estimator.demand(&facts, "a");
    assert_eq!((demand.output, demand.max_output), (400, Some(800)));
}

#[test]
fn cold_estimates_match_the_documentation() {
    let estimator = Estimator::new();
    let a = tenant("a");
    let demand = |facts: &RequestFacts| {
        let demand = estimator.demand(facts, &a);
        (demand.input, demand.output, demand.max_output)
    };
    assert_eq!(demand(&call(1_000, None)), (300 + MESSAGE_TOKENS, COLD_OUTPUT, None));
    assert_eq!(demand(&call(1_000, Some(4_096))), (300 + MESSAGE_TOKENS, 4_096, Some(4_096)));
    assert_eq!(demand(&RequestFacts::unknown()), (UNSEEN_INPUT, COLD_OUTPUT, None));
    for (task, output, most) in [
        (Task::Embed, 0, Some(0)),
        (Task::Rank, 0, Some(0)),
        (Task::Classify, 0, Some(0)),
        (Task::Image, 4_160, None),
        (Task::Video, 2_104, None),
        (Task::Speech, 1_500, Some(1_500)),
    ] {
        assert_eq!(demand(&RequestFacts { task, ..call(1_000, None) }), (304, output, most), "{task:?}");
    }
    let mut facts = call(1_000, None);
    facts.prompt.as_mut().unwrap().thinking = Some(8_192);
    assert_eq!(estimator.demand(&facts, &a).output, COLD_OUTPUT + 8_192);
    assert_eq!(estimator.ratio(Some("m")), COLD_RATIO);
    let beside =
        RequestFacts::read(&Method::GET, &Uri::from_static("/v1/models"), &HeaderMap::new(), Some(b""));
    assert_eq!(estimator.demand(&beside, &a), Demand::default());
}

#[test]
fn estimates_are_warm_after_eight_responses() {
    let mut estimator = Estimator::new();
    let a = tenant("a");
    let facts = call(4_000, Some(32_768));
    for _ in 0..8 {
        estimator.learn(&facts, &a, &mut LengthSample::default(), &usage(1_000, 200));
    }
    let demand = estimator.demand(&facts, &a);
    assert!(near(demand.input as f64, 1_000.0, 0.01), "{demand:?}");
    assert_eq!((demand.output, demand.max_output), (200, Some(32_768)));
}

#[test]
fn several_choices_multiply_the_output() {
    let mut estimator = Estimator::new();
    let a = tenant("a");
    let mut three = call(100, Some(1_000));
    three.prompt.as_mut().unwrap().answers = Some(3);
    for _ in 0..20 {
        estimator.learn(&three, &a, &mut LengthSample::default(), &usage(30, 300));
    }
    assert_eq!(estimator.demand(&call(100, Some(1_000)), &a).output, 100);
    let demand = estimator.demand(&three, &a);
    assert_eq!((demand.output, demand.max_output), (300, Some(3_000)));
    let expected = estimator.output(&three, &a);
    assert_eq!((expected.mean(), expected.max()), (300, Some(3_000)));
}

#[test]
fn line_converges_under_noise() {
    let mut estimator = Estimator::new();
    let mut noise = Noise::seeded();
    let a = tenant("a");
    let (mut counted, mut expected) = (0.0, 0.0);
    for n in 0..1_000 {
        let bytes = noise.lognormal(3_000.0, 1.0);
        let facts = call(bytes, None);
        let real = (50.0 + 0.22 * bytes as f64 * (0.2 * noise.normal()).exp()) as u64;
        if n >= 8 {
            counted += real as f64;
            expected += estimator.demand(&facts, &a).input as f64;
        }
        estimator.learn(&facts, &a, &mut LengthSample::default(), &usage(real, 100));
    }
    let ratio = estimator.ratio(Some("m"));
    assert!(near(ratio, 0.22 * 0.02_f64.exp(), 0.06), "{ratio}");
    assert!(near(expected, counted, 0.03), "{expected} of {counted}");
}

#[test]
fn line_follows_a_step_change() {
    let mut estimator = Estimator::new();
    let mut noise = Noise::seeded();
    let a = tenant("a");
    let facts = call(4_000, None);
    let mut teach = |estimator: &mut Estimator, n: usize, input: f64, output: f64| {
        for _ in 0..n {
            let counted = usage(noise.lognormal(input, 0.2), noise.lognormal(output, 0.5));
            estimator.learn(&facts, &a, &mut LengthSample::default(), &counted);
        }
        estimator.demand(&facts, &a)
    };
    teach(&mut estimator, 500, 800.0, 100.0);
    // The estimate follows half of a step within 138 responses and 11/12 of it within 500, even if
    // the step is larger than the limit for outliers.
    let up = teach(&mut estimator, 500, 2_400.0, 4_000.0);
    assert!(near(up.input as f64, 2_400.0, 0.12), "{up:?}");
    assert!(near(up.output as f64, 4_000.0 * 0.125_f64.exp(), 0.2), "{up:?}");
    let down = teach(&mut estimator, 1_000, 800.0, 100.0);
    assert!(near(down.input as f64, 800.0, 0.1), "{down:?}");
    assert!(near(down.output as f64, 100.0 * 0.125_f64.exp(), 0.4), "{down:?}");
}

#[test]
fn nonsense_usage_is_ignored() {
    let a = tenant("a");
    let facts = call(4_000, None);
    let sane = |estimator: &mut Estimator| {
        for _ in 0..200 {
            estimator.learn(&facts, &a, &mut LengthSample::default(), &usage(1_000, 300));
        }
    };
    for absurd in [
        usage(0, 0),
        usage(1_000_000_000_000, 1_000_000_000_000),
        usage(u64::MAX, u64::MAX),
        usage(1, 1),
        Usage { input: 1_000, output: 300, cached_input: u64::MAX },
        Usage { input: 0, output: 0, cached_input: 10 },
    ] {
        let mut estimator = Estimator::new();
        sane(&mut estimator);
        estimator.learn(&facts, &a, &mut LengthSample::default(), &absurd);
        let demand = estimator.demand(&facts, &a);
        assert!(near(demand.input as f64, 1_004.0, 0.05), "{absurd:?}: {demand:?}");
        assert!(near(demand.output as f64, 300.0, 0.05), "{absurd:?}: {demand:?}");
        assert!(estimator.demand(&facts, &a).cached <= demand.input / 100, "{absurd:?}");
        let unseen = RequestFacts { prompt: None, ..facts.clone() };
        assert!(near(estimator.demand(&unseen, &a).input as f64, 1_000.0, 0.125), "{absurd:?}");
    }
}

/// A provider that always reports zeros leaves the defaults in force.
#[test]
fn zero_usage_is_ignored() {
    let mut estimator = Estimator::new();
    let a = tenant("a");
    let facts = call(4_000, Some(500));
    let cold = estimator.demand(&facts, &a);
    for _ in 0..100 {
        estimator.learn(&facts, &a, &mut LengthSample::default(), &usage(0, 0));
    }
    assert_eq!(estimator.demand(&facts, &a), cold);
}

#[test]
fn cached_share_is_learned() {
    let mut estimator = Estimator::new();
    let a = tenant("a");
    let facts = call(4_000, None);
    assert_eq!(estimator.demand(&facts, &a).cached, 0);
    for _ in 0..50 {
        estimator.learn(
            &facts,
            &a,
            &mut LengthSample::default(),
            &Usage { input: 1_000, output: 100, cached_input: 800 },
        );
    }
    let demand = estimator.demand(&facts, &a);
    assert!(near(demand.input as f64, 1_000.0, 0.01), "all of it is read: {demand:?}");
    assert!(near(estimator.demand(&facts, &a).cached as f64, 800.0, 0.02));
}

#[test]
fn stored_context_is_learned_separately() {
    let mut estimator = Estimator::new();
    let a = tenant("a");
    let plain = call(400, None);
    let mut goes_on = call(400, None);
    goes_on.prompt.as_mut().unwrap().has_stored_context = true;
    for _ in 0..50 {
        estimator.learn(&plain, &a, &mut LengthSample::default(), &usage(104, 100));
        estimator.learn(&goes_on, &a, &mut LengthSample::default(), &usage(5_104, 100));
    }
    assert!(near(estimator.demand(&plain, &a).input as f64, 104.0, 0.02));
    assert!(near(estimator.demand(&goes_on, &a).input as f64, 5_104.0, 0.02));
}

#[test]
fn media_are_learned_separately() {
    let mut estimator = Estimator::new();
    let a = tenant("a");
    let plain = call(400, None);
    let mut image = call(400, None);
    image.prompt.as_mut().unwrap().media = 1;
    image.prompt.as_mut().unwrap().media_tokens = 1_600;
    for _ in 0..50 {
        estimator.learn(&plain, &a, &mut LengthSample::default(), &usage(104, 100));
        estimator.learn(&image, &a, &mut LengthSample::default(), &usage(904, 100));
    }
    assert!(near(estimator.demand(&plain, &a).input as f64, 104.0, 0.02));
    assert!(near(estimator.demand(&image, &a).input as f64, 904.0, 0.02));
}

#[test]
fn tenant_is_learned_separately_and_unknown_tenant_uses_the_model() {
    let mut estimator = Estimator::new();
    let (short, long, new) = (tenant("short"), tenant("long"), tenant("new"));
    let facts = call(1_000, None);
    for _ in 0..200 {
        estimator.learn(&facts, &short, &mut LengthSample::default(), &usage(250, 20));
        estimator.learn(&facts, &long, &mut LengthSample::default(), &usage(600, 2_000));
    }
    let of = |tenant: &Arc<str>| estimator.demand(&facts, tenant);
    assert!(near(of(&short).output as f64, 20.0, 1.0) && near(of(&long).output as f64, 2_000.0, 0.03));
    assert!(near(of(&short).input as f64, 250.0, 0.03) && near(of(&long).input as f64, 600.0, 0.03));
    assert!(near(of(&new).output as f64, 1_010.0, 0.03));
    let other = RequestFacts { model: Some("other".into()), ..facts.clone() };
    assert_eq!(estimator.demand(&other, &short).output, COLD_OUTPUT);
}

#[test]
fn number_of_models_and_tenants_is_bounded() {
    let mut estimator = Estimator::new();
    let regular = tenant("regular");
    let facts = call(1_000, None);
    for n in 0..100_000_u64 {
        let stranger = RequestFacts { model: Some(format!("m{}", n % 7_000).into()), ..facts.clone() };
        estimator.learn(&stranger, &tenant(&format!("t{n}")), &mut LengthSample::default(), &usage(400, 100));
        if n % 50 == 0 {
            estimator.learn(&facts, &regular, &mut LengthSample::default(), &usage(400, 2_000));
        }
    }
    assert!(near(estimator.demand(&facts, &regular).output as f64, 2_000.0, 0.01));
    let (inputs, outputs) = estimator.sizes();
    assert!(inputs <= 1_024 && outputs <= 2_048, "{inputs}, {outputs}");
}

/// The estimated quantiles are close to the exact quantiles of the most recent lengths. The lengths
/// are lognormal.
#[test]
fn quantiles_match_the_observations() {
    let mut estimator = Estimator::new();
    let mut noise = Noise::seeded();
    let a = tenant("a");
    let facts = call(100, None);
    let lengths: Vec<u64> = (0..4_000).map(|_| noise.lognormal(150.0, 0.9)).collect();
    for length in &lengths {
        estimator.learn(&facts, &a, &mut LengthSample::default(), &usage(30, *length));
    }
    // Only about the last 400 responses have a noticeable weight.
    let mut recent: Vec<u64> = lengths[lengths.len() - 400..].to_vec();
    recent.sort_unstable();
    let expected = estimator.output(&facts, &a);
    for (probability, off) in [(0.1, 0.25), (0.5, 0.2), (0.9, 0.2), (0.95, 0.25)] {
        let exact = recent[(probability * recent.len() as f64) as usize] as f64;
        let found = expected.quantile(probability) as f64;
        assert!(near(found, exact, off), "p{probability}: {found} for {exact}");
    }
    for produced in [50, 150, 400] {
        let left: Vec<f64> =
            recent.iter().filter(|l| **l > produced).map(|l| (*l - produced) as f64).collect();
        let exact = left.iter().sum::<f64>() / left.len() as f64;
        let found = expected.remaining(produced) as f64;
        assert!(near(found, exact, 0.3), "after {produced}: {found} for {exact}");
    }
    // Beyond every observed length, half of the produced tokens remain.
    assert_eq!(expected.remaining(300_000), 150_000);
}

#[test]
fn max_tokens_bounds_the_expected_output() {
    let mut estimator = Estimator::new();
    let a = tenant("a");
    for _ in 0..100 {
        estimator.learn(&call(100, None), &a, &mut LengthSample::default(), &usage(30, 1_000));
    }
    // A class without observations has the lengths of its model, at most its own limit.
    let facts = call(100, Some(300));
    assert_eq!(estimator.demand(&facts, &a).output, 300);
    let expected = estimator.output(&facts, &a);
    assert_eq!((expected.mean(), expected.quantile(0.99), expected.remaining(100)), (300, 300, 200));
    assert_eq!((expected.remaining(300), expected.remaining(5_000)), (0, 0));
    // Longer answers than the limit are learned as the limit.
    for _ in 0..100 {
        estimator.learn(&facts, &a, &mut LengthSample::default(), &usage(30, 1_000_000));
    }
    assert_eq!(estimator.demand(&facts, &a).output, 300);
}

fn anything() -> impl Strategy<Value = (RequestFacts, Usage)> {
    let number = prop_oneof![Just(0), Just(u64::MAX), 1_u64..100_000, any::<u64>()];
    let some = prop::option::of(number.clone());
    let prompt =
        (number.clone(), number.clone(), number.clone(), some.clone(), some.clone(), some, any::<bool>());
    let counted = (number.clone(), number.clone(), number);
    (prop::option::of(prompt), counted, 0..3_u8, prop::sample::select(&TASKS[..])).prop_map(
        |(prompt, counted, model, task)| {
            let prompt =
                prompt.map(|(text_bytes, messages, media_tokens, max_tokens, answers, thinking, kept)| {
                    Prompt {
                        text_bytes,
                        messages,
                        media_tokens,
                        max_tokens,
                        answers,
                        thinking,
                        has_stored_context: kept,
                        ..Prompt::default()
                    }
                });
            let model = (model > 0).then(|| format!("m{model}").into());
            let facts = RequestFacts { model, prompt, task, ..RequestFacts::unknown() };
            let (input, output, cached_input) = counted;
            (facts, Usage { input, output, cached_input })
        },
    )
}

const TASKS: [Task; 9] = [
    Task::Text,
    Task::Embed,
    Task::Rank,
    Task::Classify,
    Task::Image,
    Task::Video,
    Task::Speech,
    Task::Transcribe,
    Task::Other,
];

proptest! {
    /// For any usage, quantiles are finite, ascending and within the limit of the call.
    #[test]
    fn any_observations_yield_valid_estimates(
        lessons in prop::collection::vec(anything(), 0..40),
        (facts, _) in anything(),
    ) {
        let mut estimator = Estimator::new();
        let a = tenant("a");
        for (facts, usage) in &lessons {
            estimator.learn(facts, &a, &mut LengthSample::default(), usage);
        }
        let ratio = estimator.ratio(facts.model.as_deref());
        prop_assert!(ratio > 0.0 && ratio <= 1.25, "{}", ratio);
        let demand = estimator.demand(&facts, &a);
        prop_assert!(demand.max_output.is_none_or(|most| demand.output <= most), "{:?}", demand);
        prop_assert!(estimator.demand(&facts, &a).cached <= demand.input);
        let expected = estimator.output(&facts, &a);
        let quantiles = [0.0, 0.1, 0.5, 0.9, 0.99, 1.0].map(|p| expected.quantile(p));
        prop_assert!(quantiles.is_sorted(), "{:?}", quantiles);
        prop_assert!(expected.max().is_none_or(|max| quantiles[5] <= max && expected.mean() <= max));
        for produced in [0, 1, 100, 1 << 20, u64::MAX] {
            let left = expected.remaining(produced);
            prop_assert!(expected.max().is_none_or(|max| left <= max.saturating_sub(produced).saturating_add(1)));
        }
    }

    #[test]
    fn longer_text_never_lowers_a_learned_estimate(
        lessons in prop::collection::vec((1_u64..1_000_000, 0.0..3.0_f64), 0..60),
        bytes in 0_u64..2_000_000,
        more in 0_u64..2_000_000,
    ) {
        let mut estimator = Estimator::new();
        let a = tenant("a");
        for (bytes, ratio) in lessons {
            estimator.learn(&call(bytes, None), &a, &mut LengthSample::default(), &usage((bytes as f64 * ratio) as u64, 10));
        }
        let input = |bytes| estimator.demand(&call(bytes, None), &a).input;
        prop_assert!(input(bytes) <= input(bytes + more));
    }

    /// A single false report changes the estimates at most by the weight of one response, times 4
    /// for the input and times 16 for the output.
    #[test]
    fn one_response_moves_little(lie in any::<u64>(), output in any::<u64>(), sane in 8..300_usize) {
        let mut estimator = Estimator::new();
        let a = tenant("a");
        let facts = call(4_000, None);
        for _ in 0..sane {
            estimator.learn(&facts, &a, &mut LengthSample::default(), &usage(1_000, 300));
        }
        let before = estimator.demand(&facts, &a);
        estimator.learn(&facts, &a, &mut LengthSample::default(), &usage(lie, output));
        let after = estimator.demand(&facts, &a);
        let weight = 1.0 / (sane.min(200) as f64 * 0.5);
        prop_assert!(near(after.input as f64, before.input as f64, 4.0 * weight), "{:?} {:?}", before, after);
        prop_assert!(near(after.output as f64, before.output as f64, 16.0 * weight), "{:?} {:?}", before, after);
    }
}

/// A call that asks for absurdly much must not distort what all calls of its target are charged.
#[test]
fn expected_output_of_absurd_requests_is_bounded() {
    let estimator = Estimator::new();
    let mut facts = call(10, Some(u64::MAX));
    if let Some(prompt) = &mut facts.prompt {
        prompt.answers = Some(u64::MAX);
    }
    assert!(estimator.demand(&facts, "a").output <= 1 << 28);
}
