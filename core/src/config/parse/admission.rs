//! What decides over a call by its size.

use super::rates::TOKENS;
use super::section::Section;
use super::tree::Value;
use super::value::{InvalidValue, count, duration, flag, name_of, number, one_of, or_none, whole};
use super::{QUEUE, fallback};
use crate::config::{CostRule, Predict, TargetConfig, Tokenizer};

const COST: &[(&str, CostRule)] = &[
    (CostRule::Auto.as_str(), CostRule::Auto),
    (CostRule::Tokens.as_str(), CostRule::Tokens),
    (CostRule::Kv.as_str(), CostRule::Kv),
    (CostRule::Calls.as_str(), CostRule::Calls),
];
const PREDICT: &[(&str, Predict)] = &[
    (Predict::Deadline.as_str(), Predict::Deadline),
    (Predict::Objective.as_str(), Predict::Objective),
    (Predict::Off.as_str(), Predict::Off),
];
const TOKENIZER: &[(&str, Tokenizer)] = &[
    (Tokenizer::Learned.as_str(), Tokenizer::Learned),
    (Tokenizer::Bpe.as_str(), Tokenizer::Bpe),
    (Tokenizer::Vllm.as_str(), Tokenizer::Vllm),
];

pub(super) fn read(section: &Section<'_>, into: &mut TargetConfig) {
    section.set("backlog", &mut into.backlog, whole(QUEUE));
    section.set("cost", &mut into.cost, one_of(COST));
    section.set("short_bias", &mut into.short_bias, or_none(duration));
    section.set("reclaim", &mut into.reclaim, flag);
    section.set("predict", &mut into.predict, one_of(PREDICT));
    section.set("max_prompt", &mut into.max_prompt, or_none(count(TOKENS)));
    section.set("kv_tokens", &mut into.kv_tokens, or_none(count(TOKENS)));
    section.set("kv_headroom", &mut into.kv_headroom, number(0.0..=0.9));
    section.set("tokenizer", &mut into.tokenizer, tokenizer);
    section.set("ask_usage", &mut into.ask_usage, flag);
    if let Some(given) = section.get("fallback") {
        into.fallback = given.read(or_none(name_of(fallback::EXPECTED))).flatten();
    }
}

/// Counting exactly takes the vocabularies along, which not every build has.
fn tokenizer(value: &Value) -> Result<Tokenizer, InvalidValue> {
    let chosen = one_of(TOKENIZER)(value)?;
    if chosen == Tokenizer::Bpe && !cfg!(feature = "bpe") {
        return Err(InvalidValue::expected("\"learned\" or \"vllm\"")
            .hint("this build is without the feature \"bpe\""));
    }
    Ok(chosen)
}
