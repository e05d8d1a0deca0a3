//! Settings whose value is one of a few keywords.

use super::{InvalidValue, Scalar, Value};

/// Declares enums whose variants are keywords of the configuration. The first variant is the
/// default.
macro_rules! keywords {
    ($(
        $(#[doc = $about:literal])+
        $name:ident {
            $(#[doc = $first_doc:literal])+
            $first:ident = $first_word:literal,
            $( $(#[doc = $doc:literal])+ $variant:ident = $word:literal, )*
        }
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = $first_doc])+
            #[doc = "The default."]
            #[default]
            $first,
            $( $(#[doc = $doc])+ $variant, )*
        }

        impl $name {
            const ALL: &'static [Self] = &[Self::$first, $(Self::$variant),*];

            /// Returns the keyword that the configuration uses.
            pub const fn as_str(self) -> &'static str {
                match self {
                    Self::$first => $first_word,
                    $( Self::$variant => $word, )*
                }
            }
        }

        impl Scalar for $name {
            type Bounds = ();

            fn read(value: &Value, (): &()) -> Result<Self, InvalidValue> {
                let chosen = match value {
                    Value::Text(text) => Self::ALL.iter().find(|choice| choice.as_str() == text),
                    _ => None,
                };
                chosen.copied().ok_or_else(|| {
                    InvalidValue::expected(one_of(Self::ALL.iter().map(|choice| choice.as_str())))
                })
            }

            fn to_value(&self) -> Value {
                Value::Text(self.as_str().to_owned())
            }

            #[cfg(test)]
            fn kind((): &()) -> super::declaration::Kind {
                super::declaration::Kind::Keywords(&[
                    ($first_word, &[$($first_doc),+]),
                    $( ($word, &[$($doc),+]), )*
                ])
            }
        }
    )+};
}

/// Returns the keywords as text: `"a", "b" or "c"`.
fn one_of(words: impl Iterator<Item = &'static str>) -> String {
    let words: Vec<String> = words.map(|word| format!("{word:?}")).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

keywords! {
    /// Whether the gate acts on calls, only measures them, or is off.
    Mode {
        /// Limits, queues, rejects and retries calls.
        Enforce = "enforce",
        /// Measures and records what it would have done, but delays, rejects and retries no call.
        Observe = "observe",
        /// Hands every call straight to the transport.
        Off = "off",
    }

    /// What happens to a call that finds no free slot.
    OnFull {
        /// The call is queued. It fails with 504 when its wait budget runs out.
        Wait = "wait",
        /// The call is rejected at once with 429.
        Refuse = "refuse",
    }

    /// The cost that fair queueing charges for a call.
    CostRule {
        /// `kv` for pools and for targets with `kv_tokens`, otherwise `tokens`.
        Auto = "auto",
        /// Input and output tokens.
        Tokens = "tokens",
        /// Tokens in the engine's KV memory, times the seconds for which the call holds them.
        Kv = "kv",
        /// 1 per call.
        Calls = "calls",
    }

    /// When a call is rejected at once because of its predicted wait.
    Predict {
        /// If its slot is predicted after its deadline or the end of its wait budget.
        Deadline = "deadline",
        /// Also if its slot is predicted after the TTFT objective of its lane.
        Objective = "objective",
        /// Never.
        Off = "off",
    }

    /// How the tokens of a prompt are counted before the call is sent.
    Tokenizer {
        /// By the prompt's length, with a ratio learned from the provider's counts.
        Learned = "learned",
        /// Exactly, with the encoding of OpenAI's models. Needs a build with the feature `bpe`.
        Bpe = "bpe",
        /// By a request to `/tokenize` of the vLLM server.
        Vllm = "vllm",
    }

    /// How a provider counts a call against its token rates.
    Counting {
        /// By the provider's API and what its rate headers show.
        Auto = "auto",
        /// The input and the maximum output, at arrival.
        Sum = "sum",
        /// The larger of the input and the maximum output, at arrival.
        Larger = "larger",
        /// The input at arrival, the output as it is produced.
        Actual = "actual",
        /// The input only.
        Input = "input",
    }

    /// What a provider's rate headers may change.
    HeaderPolicy {
        /// They raise and lower the rates.
        Follow = "follow",
        /// They only lower the rates: a configured rate is an upper bound.
        Lower = "lower",
        /// They change nothing.
        Ignore = "ignore",
    }
}
