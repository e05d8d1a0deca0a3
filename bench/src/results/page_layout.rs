//! The layout of `bench/RESULTS.md`: which figures it shows. It is read from
//! `bench/results/layout.toml`.
//!
//! A pattern is the name of a figure or bar in which each `*` matches any text, usually the name of
//! the scenario: `*: goodput` matches `one of four replicas lost: goodput`.

use serde::Deserialize;

use crate::Fallible;

/// Introduction and tables of the page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layout {
    /// Markdown before the tables.
    pub(super) introduction: String,
    #[serde(rename = "table")]
    pub(super) tables: Vec<Table>,
}

/// A table with the evidence of one claim.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The claim, which is the heading of the table.
    pub(super) claim: String,
    /// Names of the experiments that the table shows. A row without `experiment` shows the first of
    /// them.
    pub(super) experiments: Vec<String>,
    /// Whether experiments of the table may have no stored result. Their rows are then left out,
    /// and so is a table without rows. Default `false`: a missing result is an error.
    #[serde(default)]
    pub(super) optional: bool,
    #[serde(default)]
    pub(super) charts: Vec<Chart>,
    pub(super) rows: Vec<Row>,
}

/// A picture above a table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chart {
    /// Path below `bench/`.
    pub(super) file: String,
    /// What the picture shows, for readers who cannot see it.
    pub(super) shows: String,
}

/// A row of a table. It shows either bars (thresholds that figures have to meet) or a figure
/// without a bar.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) what: String,
    pub(super) experiment: Option<String>,
    /// Patterns of the names of this row's bars (thresholds). If several match, the row shows the
    /// one that is met by the smallest margin or missed by the largest.
    #[serde(default)]
    pub(super) bars: Vec<String>,
    /// Whether the row shows how many bars (thresholds) are met, instead of the worst value.
    /// Default `false`.
    #[serde(default)]
    pub(super) count: bool,
    /// Text of the column with the threshold (bar). Default: the threshold of the worst value.
    pub(super) bar: Option<String>,
    /// Pattern of the name of a figure without a bar (threshold). If it is given, the row shows
    /// this figure instead of bars.
    pub(super) figure: Option<String>,
    /// Values in the column to the right of Tidegate's value.
    #[serde(default)]
    pub(super) beside: Vec<Beside>,
}

/// A value in the column to the right of Tidegate's value. With `contrast`, it is the value of a
/// variant of Tidegate without the feature. Otherwise, it is a figure of the peer `peer` or,
/// without `peer`, a figure of Tidegate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Beside {
    pub(super) label: String,
    /// Name of the peer whose figure is shown. `None`: a figure of Tidegate is shown.
    pub(super) peer: Option<String>,
    /// Pattern of the figure. Default: `figure` of the row.
    pub(super) figure: Option<String>,
    /// Pattern of the bars (thresholds) of a variant of Tidegate without the feature. Such a bar
    /// counts as met if the variant misses the requirement, which shows that the experiment would
    /// detect a failure.
    pub(super) contrast: Option<String>,
}

impl Layout {
    /// Parses the text of `layout.toml`.
    pub(super) fn parse(text: &str) -> Fallible<Self> {
        Ok(toml::from_str(text).map_err(|error| format!("layout.toml: {error}"))?)
    }
}

/// Returns the part of `name` that names the scenario, or `None` if `name` does not match the
/// pattern.
///
/// For the pattern `*: goodput` and the name `half lost: goodput`, this part is `half lost`: the
/// name without the pattern's text after its last `*`. If that text is shorter than [`SUFFIX`], the
/// part is what each `*` matches, joined by commas. It is empty if the pattern has no `*`.
pub(super) fn scenario(pattern: &str, name: &str) -> Option<String> {
    let matched = matches(pattern, name)?;
    let suffix = pattern.rsplit_once('*').map_or("", |(_, suffix)| suffix);
    let text = if suffix.len() < SUFFIX { matched.join(", ") } else { name.strip_suffix(suffix)?.to_owned() };
    let parts = text.split(", ").map(str::trim).filter(|part| !part.is_empty());
    Some(parts.collect::<Vec<_>>().join(", "))
}

/// The minimum length, in bytes, of a text after a pattern's last `*` that names a measured
/// quantity, such as `: wait`. Shorter texts are mere punctuation, such as `)`.
const SUFFIX: usize = 5;

/// Returns the text that each `*` of the pattern matches in the name, each as short as possible.
/// Returns `None` if the name does not match the pattern.
fn matches<'a>(pattern: &str, name: &'a str) -> Option<Vec<&'a str>> {
    let Some((head, rest)) = pattern.split_once('*') else {
        return (pattern == name).then(Vec::new);
    };
    let tail = name.strip_prefix(head)?;
    (0..=tail.len()).filter(|end| tail.is_char_boundary(*end)).find_map(|end| {
        let (matched, tail) = tail.split_at(end);
        Some([vec![matched], matches(rest, tail)?].concat())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_is_what_the_name_adds_to_the_pattern() {
        assert_eq!(scenario("*: goodput", "half lost: goodput").as_deref(), Some("half lost"));
        assert_eq!(scenario("run 2, *: p99 (*)", "run 2, A: p99 (worst)").as_deref(), Some("A, worst"));
        assert_eq!(scenario("run 2, *: goodput", "run 2, A: goodput").as_deref(), Some("run 2, A"));
        assert_eq!(scenario("goodput", "goodput").as_deref(), Some(""));
        assert_eq!(scenario("*: goodput", "half lost: goodput, off"), None);
    }
}
