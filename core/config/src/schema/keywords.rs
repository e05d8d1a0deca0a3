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

            /// Returns the keyword as it is written in the configuration.
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
                let chosen = Self::ALL.iter().find(|choice| value.as_text() == Some(choice.as_str()));
                chosen.copied().ok_or_else(|| {
                    InvalidValue::expected(one_of(Self::ALL.iter().map(|choice| choice.as_str())))
                })
            }

            fn to_value(&self) -> Value {
                Value::Text(self.as_str().to_owned())
            }

            #[cfg(test)]
            fn kind((): &()) -> super::key_declaration::Kind {
                super::key_declaration::Kind::Keywords(&[
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
        /// The call is rejected at once with 429. A target also rejects each call during a
        /// cool-down (429) or an outage (503), and while no replica of a pool accepts calls.
        Refuse = "refuse",
    }

    /// The cost that fair queueing charges for a call.
    CostRule {
        /// The cost is that of `kv` for pools and for targets with `kv_tokens`, otherwise that of
        /// `tokens`.
        Auto = "auto",
        /// The cost is the number of input and output tokens.
        Tokens = "tokens",
        /// The cost is the number of tokens in the engine's KV memory, times the seconds for which
        /// the call holds them.
        Kv = "kv",
        /// The cost of each call is 1.
        Calls = "calls",
    }

    /// When a call is rejected at once because of its predicted wait.
    Predict {
        /// Rejects calls whose slot is predicted after their deadline or the end of their wait
        /// budget.
        Deadline = "deadline",
        /// As `deadline`. Also rejects calls whose slot is predicted too late for the TTFT
        /// objective of their lane.
        Objective = "objective",
        /// Rejects no call because of a prediction.
        Off = "off",
    }

    /// How the tokens of a prompt are counted before the call is sent.
    Tokenizer {
        /// Estimates the tokens from the length of the prompt, with a ratio that is learned from
        /// the provider's counts.
        Learned = "learned",
        /// Counts exactly, with the encoding of OpenAI's models. Requires a build with the feature
        /// `bpe`.
        Bpe = "bpe",
        /// Requests the count from `/tokenize` of the vLLM server.
        Vllm = "vllm",
    }

    /// How a provider counts a call against its token rates.
    Counting {
        /// Chooses one of the other rules by the provider's API and rate headers.
        Auto = "auto",
        /// Counts the input and the maximum output when the call arrives.
        Sum = "sum",
        /// Counts the larger of the input and the maximum output when the call arrives.
        Larger = "larger",
        /// Counts the input when the call arrives, and the output as it is produced.
        Actual = "actual",
        /// Counts the input only.
        Input = "input",
    }

    /// Whether the gate reads the metrics of a self-hosted engine behind a target.
    EngineMetricsPolicy {
        /// Read `/metrics` while calls are made: of a `url` on this machine or in a private
        /// network, and of other servers whose answers are those of vLLM, if they are in a private
        /// network or named by `url`. No credentials are sent.
        Auto = "auto",
        /// Never.
        Off = "off",
    }

    /// What a provider's rate headers may change.
    HeaderPolicy {
        /// The headers increase and decrease the rates.
        Follow = "follow",
        /// The headers only decrease the rates: a configured rate is an upper bound.
        Lower = "lower",
        /// The headers change no rate.
        Ignore = "ignore",
    }
}
