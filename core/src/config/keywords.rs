//! The words that settings of a few choices have, in files, in the builder and in what is printed of them.

use super::{CostRule, Counting, Detector, HeaderPolicy, OnFull, Predict, Tokenizer};

impl OnFull {
    /// The word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            OnFull::Wait => "wait",
            OnFull::Refuse => "refuse",
        }
    }
}

impl CostRule {
    /// The word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            CostRule::Auto => "auto",
            CostRule::Tokens => "tokens",
            CostRule::Kv => "kv",
            CostRule::Calls => "calls",
        }
    }
}

impl Predict {
    /// The word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Predict::Deadline => "deadline",
            Predict::Objective => "objective",
            Predict::Off => "off",
        }
    }
}

impl Tokenizer {
    /// The word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Tokenizer::Learned => "learned",
            Tokenizer::Bpe => "bpe",
            Tokenizer::Vllm => "vllm",
        }
    }
}

impl Counting {
    /// The word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Counting::Auto => "auto",
            Counting::Sum => "sum",
            Counting::Larger => "larger",
            Counting::Actual => "actual",
            Counting::Input => "input",
        }
    }
}

impl HeaderPolicy {
    /// The word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            HeaderPolicy::Follow => "follow",
            HeaderPolicy::Lower => "lower",
            HeaderPolicy::Ignore => "ignore",
        }
    }
}

impl Detector {
    /// The word in the configuration.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Detector::Exceedance => "exceedance",
            Detector::Percentile(_) => "percentile",
        }
    }
}
