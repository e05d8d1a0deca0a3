//! Lengths of real calls: Azure's LLM inference traces of November 2023 (CC-BY 4.0), read from `../shared/traces` beside the repository.

use std::path::Path;

use crate::Fallible;

/// One call of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traced {
    /// Seconds since the first.
    pub(crate) at: f64,
    /// Prompt tokens.
    pub(crate) input: u32,
    /// Generated tokens.
    pub(crate) output: u32,
}

/// The trace of that name, `conv` or `code`.
pub(crate) fn azure(name: &str) -> Fallible<Vec<Traced>> {
    let file = format!("azure_2023_{name}.csv");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces").join(&file);
    let text = std::fs::read_to_string(&path).map_err(|error| {
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

/// `2023-11-16 18:15:46.6805900,374,44`. All of a trace is of one day.
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
    fn a_line_is_a_time_and_two_lengths() {
        let call = line("2023-11-16 18:15:46.6805900,374,44\r").unwrap();
        assert_eq!((call.input, call.output), (374, 44));
        assert!((call.at - 65_746.680_59).abs() < 1e-6);
        assert!(line("nothing").is_none());
    }
}
