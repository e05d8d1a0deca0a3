//! Renders the answer of a sweep as configuration in TOML.

use std::fmt::Write as _;

use crate::search_result::{Binding, SweepAnswer};
use crate::sweep_outcome::Provenance;

/// Returns a target table in TOML with the recommended cap, or an empty string if no cap is
/// recommended or the cap is not confirmed. If a rate limit determines the cap, the table also
/// contains the measured `rpm` or `tpm`, or both if it is unknown which one the server limits.
pub(crate) fn config_snippet(answer: &SweepAnswer, provenance: &Provenance) -> String {
    let Some(cap) = answer.cap.filter(|_| answer.confirmed) else { return String::new() };
    let mut text = String::new();
    let _ = writeln!(text, "[targets.{}]", quoted(&provenance.target));
    let _ = writeln!(text, "url = {}", quoted(&provenance.url));
    let _ = writeln!(text, "models = [{}]", quoted(&provenance.model));
    let between = answer.interval.map_or_else(String::new, |(low, high)| {
        format!("  # {low} to {high}{}", if answer.open_above { " or more" } else { "" })
    });
    let _ = writeln!(text, "cap = {cap}{between}");
    if let Some(Binding::RequestRate | Binding::TokenRate) = answer.binding {
        // Rounded down, because calls above a rate are rejected.
        for (key, rate) in [("rpm", &answer.rpm), ("tpm", &answer.tpm)] {
            if let Some(rate) = rate.filter(|rate| rate.value >= 1.0) {
                let _ = writeln!(text, "{key} = {:.0}", rate.value.floor());
            }
        }
    }
    text
}

/// Quotes and escapes a string in the way that both TOML and JSON accept.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use tidegate::Config;

    use super::*;
    use crate::search_result::Estimate;

    fn answer(binding: Binding) -> SweepAnswer {
        let rate = Some(Estimate { value: 99_999.7, low: 90_000.0, high: 100_001.0 });
        SweepAnswer {
            cap: Some(24),
            interval: Some((23, 24)),
            open_above: false,
            binding: Some(binding),
            confirmed: true,
            because: String::new(),
            throughput: None,
            goodput: None,
            rpm: rate.filter(|_| binding == Binding::RequestRate),
            tpm: rate.filter(|_| binding == Binding::TokenRate),
            notes: Vec::new(),
        }
    }

    #[test]
    fn snippet_is_a_valid_configuration() {
        let provenance = Provenance {
            target: "a \"b\".c".to_owned(),
            url: "http://localhost:8000/v1".to_owned(),
            model: "meta/llama-3".to_owned(),
            ..Provenance::default()
        };
        for (binding, rpm, tpm) in [
            (Binding::ConcurrencyLimit, None, None),
            (Binding::RequestRate, Some(99_999), None),
            (Binding::TokenRate, None, Some(99_999)),
        ] {
            let config = Config::from_toml(&config_snippet(&answer(binding), &provenance)).unwrap();
            let target = &config.targets[0];
            assert_eq!((&*target.name, target.cap), ("a \"b\".c", 24));
            assert_eq!((target.rates.rpm, target.rates.tpm), (rpm, tpm));
            assert_eq!(target.limit, tidegate::config::LimitConfig::Fixed);
        }
        for unusable in [
            SweepAnswer { cap: None, ..answer(Binding::Client) },
            SweepAnswer { confirmed: false, ..answer(Binding::Saturation) },
        ] {
            assert_eq!(config_snippet(&unusable, &provenance), "");
        }
    }
}
