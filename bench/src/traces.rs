//! Reads call traces from `../shared/traces` beside the repository.
//!
//! The sources are Azure's LLM inference traces of November 2023 (CC-BY 4.0), and the synthetic
//! trace of Mooncake (Apache 2.0), which records the prefixes that prompts share.

use std::path::{Path, PathBuf};

use crate::Fallible;

/// One call of an Azure trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traced {
    /// Seconds since the first call.
    pub(crate) at: f64,
    /// Prompt tokens.
    pub(crate) input: u32,
    /// Generated tokens.
    pub(crate) output: u32,
}

/// Reads the Azure trace of the given name, `conv` or `code`.
pub(crate) fn azure(name: &str) -> Fallible<Vec<Traced>> {
    let file = format!("azure_2023_{name}.csv");
    let text = std::fs::read_to_string(path(&file)).map_err(|error| {
        format!("{file}: {error}. The traces are expected in ../shared/traces, beside the repository (Azure/AzurePublicDataset, AzureLLMInferenceTrace_{name}.csv)")
    })?;
    let calls: Vec<Traced> = text
        .lines()
        .skip(1)
        .filter(|line| !line.trim().is_empty())
        .map(line)
        .collect::<Option<_>>()
        .ok_or("a line of the trace is not a time and two numbers")?;
    let first = calls.first().ok_or("the trace is empty")?.at;
    Ok(calls.into_iter().map(|call| Traced { at: call.at - first, ..call }).collect())
}

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces").join(file)
}

/// One call of Mooncake's trace.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    /// Seconds since the start of the trace.
    pub(crate) at: f64,
    /// Prompt tokens.
    pub(crate) input: u32,
    /// Generated tokens.
    pub(crate) output: u32,
    /// Ids of the prompt's blocks of 512 tokens each; the last block may be shorter. If two prompts
    /// have the same id at the same position, they are equal up to the end of that block.
    pub(crate) blocks: Vec<u64>,
}

/// Reads Mooncake's synthetic trace.
pub(crate) fn mooncake() -> Fallible<Vec<Shared>> {
    let file = "mooncake_synthetic.jsonl";
    let text = std::fs::read_to_string(path(file)).map_err(|error| {
        format!("{file}: {error}. It is expected in ../shared/traces, beside the repository (kvcache-ai/Mooncake, FAST25-release/traces/synthetic_trace.jsonl)")
    })?;
    text.lines().filter(|line| !line.trim().is_empty()).map(shared).collect()
}

/// Parses a line of Mooncake's trace. Its timestamp is in milliseconds since the start of the
/// trace:
///
/// `{"timestamp": 40, "input_length": 23769, "output_length": 3, "hash_ids": [151, 152]}`
fn shared(line: &str) -> Fallible<Shared> {
    let call: serde_json::Value = serde_json::from_str(line)?;
    let number = |key: &str| call.get(key).and_then(serde_json::Value::as_u64);
    let length = |key| number(key).and_then(|tokens| u32::try_from(tokens).ok());
    let ids = call.get("hash_ids").and_then(serde_json::Value::as_array);
    let read = || {
        Some(Shared {
            at: number("timestamp")? as f64 / 1e3,
            input: length("input_length")?,
            output: length("output_length")?,
            blocks: ids?.iter().map(serde_json::Value::as_u64).collect::<Option<_>>()?,
        })
    };
    read().ok_or_else(|| "a line of Mooncake's trace lacks a number".into())
}

/// Parses a line of an Azure trace: time, prompt tokens, output tokens. An example is
///
/// `2023-11-16 18:15:46.6805900,374,44`
///
/// In the result, `at` is in seconds since midnight. Returns `None` if the line is malformed.
fn line(line: &str) -> Option<Traced> {
    let mut fields = line.trim().split(',');
    let (_, clock) = fields.next()?.split_once(' ')?;
    let mut clock = clock.split(':').map(str::parse::<f64>);
    let (hours, minutes, seconds) = (clock.next()?.ok()?, clock.next()?.ok()?, clock.next()?.ok()?);
    let at = hours * 3600.0 + minutes * 60.0 + seconds;
    Some(Traced { at, input: fields.next()?.parse().ok()?, output: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_time_and_lengths_of_an_azure_line() {
        let call = line("2023-11-16 18:15:46.6805900,374,44\r").unwrap();
        assert_eq!((call.input, call.output), (374, 44));
        assert!((call.at - 65_746.680_59).abs() < 1e-6);
        assert!(line("nothing").is_none());
    }

    #[test]
    fn parses_shared_prefixes_of_a_mooncake_line() {
        let call =
            shared(r#"{"timestamp": 40, "input_length": 600, "output_length": 3, "hash_ids": [151, 152]}"#)
                .unwrap();
        assert_eq!((call.at, call.input, call.output, call.blocks), (0.04, 600, 3, vec![151, 152]));
        assert!(shared(r#"{"timestamp": 40}"#).is_err());
    }
}
