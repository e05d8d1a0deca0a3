//! Renders `bench/RESULTS.md`, the page with all results, as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value};

use super::page_layout::{Beside, Layout, Row, Table, scenario};
use super::stored_result::{Bar, Stored};
use crate::Fallible;

/// The stored results by the name of the experiment.
type Results = BTreeMap<String, Stored>;

/// Returns the text of the page.
///
/// # Errors
///
/// Returns an error if an experiment of a table that is not optional has no result, or if a bar
/// (threshold) of a result does not match exactly one pattern of the layout.
pub(super) fn page(layout: &Layout, results: &Results, shortfalls: &str) -> Fallible<String> {
    check_coverage(layout, results)?;
    let bars: Vec<&Bar> = results.values().flat_map(|result| &result.bars).collect();
    let met = bars.iter().filter(|bar| bar.ok).count();
    let mut out = String::from("# Results\n\n");
    writeln!(out, "{}\n", layout.introduction.trim())?;
    let [met, all] = [met, bars.len()].map(|count| number(count as f64));
    writeln!(out, "**{met} of {all} bars are met.** The last section explains the others.")?;
    for table in &layout.tables {
        let is_stored = |row| experiment(table, row).is_some_and(|name| results.contains_key(name));
        let rows: Vec<&Row> = table.rows.iter().filter(|row| !table.optional || is_stored(row)).collect();
        if rows.is_empty() {
            continue;
        }
        // Without a blank line below, so that the page stays within its lines.
        writeln!(out, "\n## {}", table.claim)?;
        for chart in &table.charts {
            writeln!(out, "![{}]({})\n", chart.shows, chart.file)?;
        }
        writeln!(
            out,
            "| figure | Tidegate | beside it | bar | met | experiment, commit |\n|---|---|---|---|---|---|"
        )?;
        for row in rows {
            if let Some(line) = line(table, row, results)? {
                writeln!(out, "{line}")?;
            }
        }
    }
    write!(out, "\n{}", shortfalls.trim())?;
    Ok(out)
}

/// Returns an error unless each bar (threshold) of each result matches exactly one pattern of the
/// layout: in the `bars` of a row, or in the `contrast` of a value beside it.
fn check_coverage(layout: &Layout, results: &Results) -> Fallible<()> {
    for result in results.values() {
        for bar in &result.bars {
            let patterns = layout.tables.iter().flat_map(|table| {
                let rows =
                    table.rows.iter().filter(|row| experiment(table, row) == Some(result.name.as_str()));
                rows.flat_map(|row| {
                    let contrasts = row.beside.iter().filter_map(|beside| beside.contrast.as_ref());
                    row.bars.iter().chain(contrasts)
                })
            });
            let shown = patterns.filter(|pattern| scenario(pattern, &bar.what).is_some()).count();
            if shown != 1 {
                let what = format!("{}: the bar `{}` is in {shown} rows", result.name, bar.what);
                return Err(format!("{what} of bench/results/layout.toml instead of one").into());
            }
        }
    }
    Ok(())
}

fn experiment<'a>(table: &'a Table, row: &'a Row) -> Option<&'a str> {
    row.experiment.as_ref().or(table.experiments.first()).map(String::as_str)
}

/// Returns a row of a table as Markdown. Returns `None` if the result has no figure or bar that
/// matches the row's patterns.
fn line(table: &Table, row: &Row, results: &Results) -> Fallible<Option<String>> {
    let name = experiment(table, row).ok_or_else(|| format!("`{}` has no experiment", table.claim))?;
    let result = results.get(name).ok_or_else(|| format!("bench/results/{name}.json is missing"))?;
    let (ours, bar, met) = if let Some(figure) = &row.figure {
        let values = matching(&result.figures, figure);
        (range(&values), String::new(), String::new())
    } else {
        let bars = bars(result, &row.bars);
        let Some((at, worst)) = bars.iter().min_by(|(_, a), (_, b)| margin(a).total_cmp(&margin(b))) else {
            return Err(format!("`{}`: no bar of {name} matches {:?}", row.what, row.bars).into());
        };
        let met = bars.iter().filter(|(_, bar)| bar.ok).count();
        let counted = row.count;
        let ours = if counted { format!("{met} of {}", bars.len()) } else { worst_of(&bars, at, worst) };
        let bar = match &row.bar {
            Some(text) => text.clone(),
            None if counted => "all".to_owned(),
            None => format!("{} {}", sign(&worst.op), show(&worst.bar)),
        };
        (ours, bar, verdict(met, bars.len()))
    };
    if ours.is_empty() {
        return Ok(None);
    }
    check_scenarios(result, row)?;
    let beside: Vec<String> =
        row.beside.iter().filter_map(|beside| self::beside(result, row, beside)).collect();
    let cells = [&row.what, &ours, &beside.join("; "), &bar, &met].map(|cell| cell.replace('|', "\\|"));
    Ok(Some(format!("| {} | `{name}` {} |", cells.join(" | "), result.commit)))
}

/// Returns the text for `worst`, the bar (threshold) that is met by the smallest margin: its value
/// and, if `bars` has several, their number and the scenario of `worst`.
fn worst_of(bars: &[(String, &Bar)], scenario: &str, worst: &Bar) -> String {
    let value = show_against(&worst.value, &worst.bar);
    match bars {
        [_] => value,
        _ if bars.iter().all(|(_, bar)| bar.value == worst.value) => format!("{value} in all {}", bars.len()),
        _ if scenario.is_empty() => format!("worst of {}: {value}", bars.len()),
        _ => format!("worst of {}: {value} ({scenario})", bars.len()),
    }
}

fn verdict(met: usize, of: usize) -> String {
    match (met, of) {
        _ if met == of => "yes".to_owned(),
        (_, 1) => "**no**".to_owned(),
        _ => format!("**{met} of {of}**"),
    }
}

fn beside(result: &Stored, row: &Row, beside: &Beside) -> Option<String> {
    let value = if let Some(contrast) = &beside.contrast {
        let bars = bars(result, std::slice::from_ref(contrast));
        let (_, weakest) = bars.iter().min_by(|(_, a), (_, b)| margin(a).total_cmp(&margin(b)))?;
        let word = if bars.len() > 1 { "at best " } else { "" };
        let miss = if weakest.ok { "" } else { ", **which would not show a failure**" };
        format!("{word}{}{miss}", show(&weakest.value))
    } else {
        range(&matching(figures_of(result, beside)?, beside.figure.as_ref().or(row.figure.as_ref())?))
    };
    (!value.is_empty()).then(|| format!("{} {value}", beside.label))
}

/// Returns an error if a value beside a row, with the pattern of the row's bars (thresholds), is
/// over scenarios of which only some have a bar.
fn check_scenarios(result: &Stored, row: &Row) -> Fallible<()> {
    for beside in &row.beside {
        let Some(pattern) = beside.figure.as_ref().filter(|pattern| row.bars.contains(pattern)) else {
            continue;
        };
        let keys = figures_of(result, beside).into_iter().flat_map(Map::keys);
        let (barred, others): (Vec<_>, Vec<_>) = keys
            .filter(|key| scenario(pattern, key).is_some())
            .partition(|key| result.bars.iter().any(|bar| bar.what == **key));
        if let (false, [other, ..]) = (barred.is_empty(), &others[..]) {
            let row = format!("`{}` of {}: `{}`", row.what, result.name, beside.label);
            return Err(format!("{row} includes `{other}`, which has no bar").into());
        }
    }
    Ok(())
}

/// Returns the figures of the peer of `beside`, or those of Tidegate.
fn figures_of<'a>(result: &'a Stored, beside: &Beside) -> Option<&'a Map<String, Value>> {
    match &beside.peer {
        Some(peer) => result.peers.get(peer),
        None => Some(&result.figures),
    }
}

/// Returns the bars (thresholds) whose names match one of the patterns, each after the name of its
/// scenario (the text that the `*` of the pattern stands for).
fn bars<'a>(result: &'a Stored, patterns: &[String]) -> Vec<(String, &'a Bar)> {
    let of = |bar: &'a Bar| patterns.iter().find_map(|pattern| Some((scenario(pattern, &bar.what)?, bar)));
    result.bars.iter().filter_map(of).collect()
}

fn matching<'a>(figures: &'a Map<String, Value>, pattern: &str) -> Vec<&'a Value> {
    figures.iter().filter(|(key, _)| scenario(pattern, key).is_some()).map(|(_, value)| value).collect()
}

/// Returns the margin by which a value meets its bar (threshold), as a fraction of the threshold.
/// The margin is negative if the bar is missed. If the comparison is in words, returns infinity if
/// the bar is met and negative infinity otherwise.
fn margin(bar: &Bar) -> f64 {
    let (Some(value), Some(limit)) = (bar.value.as_f64(), bar.bar.as_f64()) else {
        return if bar.ok { f64::INFINITY } else { f64::NEG_INFINITY };
    };
    let scale = if limit == 0.0 { 1.0 } else { limit.abs() };
    match bar.op.as_str() {
        "<=" | "<" => (limit - value) / scale,
        ">=" | ">" => (value - limit) / scale,
        _ => -(value - limit).abs() / scale,
    }
}

fn sign(op: &str) -> &str {
    match op {
        "<=" => "≤",
        ">=" => "≥",
        "==" => "=",
        other => other,
    }
}

/// Returns the text of one value. For several values, returns the minimum and maximum of their
/// medians, and without values an empty text.
fn range(values: &[&Value]) -> String {
    let median = |value: &Value| value.get("median").unwrap_or(value).as_f64();
    let mut numbers: Vec<f64> = values.iter().filter_map(|value| median(value)).collect();
    numbers.sort_by(f64::total_cmp);
    match (values, numbers.as_slice()) {
        ([one], []) => show(one),
        (_, [one]) => number(*one),
        (_, [least, .., most]) if least == most => number(*least),
        (_, [least, .., most]) => format!("{} to {}", number(*least), number(*most)),
        _ => String::new(),
    }
}

/// Returns the text of a value with enough digits to be different from `bar`, its threshold.
fn show_against(value: &Value, bar: &Value) -> String {
    match (value.as_f64(), bar.as_f64()) {
        (Some(x), Some(limit)) if x != limit && number(x) == number(limit) => value.to_string(),
        _ => show(value),
    }
}

fn show(value: &Value) -> String {
    if let Value::String(text) = value {
        return text.clone();
    }
    let part = |key: &str| value.get(key).and_then(Value::as_f64);
    match (part("median"), part("least"), part("most")) {
        (Some(median), Some(least), Some(most)) if least == most => number(median),
        (Some(median), Some(least), Some(most)) => {
            format!("{} ({} to {})", number(median), number(least), number(most))
        }
        _ => value.as_f64().map_or_else(|| value.to_string(), number),
    }
}

/// Formats a number with three significant digits. Digits before the decimal point are never
/// rounded, and commas separate the thousands.
pub(super) fn number(x: f64) -> String {
    if x == 0.0 {
        return "0".to_owned();
    }
    let digits = (2 - x.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{x:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    let (sign, text) = text.strip_prefix('-').map_or(("", text), |text| ("−", text));
    let (whole, fraction) = text.split_once('.').map_or((text, String::new()), |(w, f)| (w, format!(".{f}")));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{fraction}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stored(bars: Value) -> Results {
        let result = json!({"name": "x", "commit": "abc1234", "machine": "", "seeds": [],
            "figures": {"a: wait": 2, "b: wait": {"median": 5, "least": 1, "most": 9}},
            "peers": {"fifo": {"a: wait": 40, "b: wait": 50}}, "bars": bars});
        [("x".to_owned(), serde_json::from_value(result).unwrap())].into()
    }

    fn layout(rows: &str) -> Layout {
        let head = "introduction = 'text'\n[[table]]\nclaim = 'It holds'\nexperiments = ['x']\n";
        Layout::parse(&format!("{head}{rows}")).unwrap()
    }

    #[test]
    fn row_shows_the_worst_scenario_and_counts_those_that_meet_the_bar() {
        let bars = json!([
            {"what": "a: wait", "value": 2, "op": "<=", "bar": 4, "ok": true},
            {"what": "b: wait", "value": 9, "op": "<=", "bar": 4, "ok": false},
        ]);
        let layout = layout(
            "rows = [{what = 'wait, s', bars = ['*: wait'], beside = [{label = 'FIFO', peer = 'fifo', figure = '*: wait'}]}]",
        );
        let page = page(&layout, &stored(bars), "## Shortfalls").unwrap();
        let row = "| wait, s | worst of 2: 9 (b) | FIFO 40 to 50 | ≤ 4 | **1 of 2** | `x` abc1234 |";
        assert!(page.contains(row), "{page}");
        assert!(page.contains("**1 of 2 bars are met.**"), "{page}");
    }

    #[test]
    fn value_beside_of_a_scenario_without_a_bar_is_an_error() {
        let bars = json!([{"what": "a: wait", "value": 2, "op": "<=", "bar": 4, "ok": true}]);
        let beside = "beside = [{label = 'FIFO', peer = 'fifo', figure = '*: wait'}]";
        let layout = layout(&format!("rows = [{{what = 'wait, s', bars = ['*: wait'], {beside}}}]"));
        let error = page(&layout, &stored(bars), "").unwrap_err();
        assert!(error.to_string().contains("`b: wait`, which has no bar"), "{error}");
    }

    #[test]
    fn figure_without_a_bar_shows_its_range_over_the_scenarios() {
        let layout = layout("rows = [{what = 'wait, s', figure = '*: wait'}]");
        let page = page(&layout, &stored(json!([])), "").unwrap();
        assert!(page.contains("| wait, s | 2 to 5 |  |  |  | `x` abc1234 |"), "{page}");
    }

    #[test]
    fn bar_without_a_row_is_an_error() {
        let bars = json!([{"what": "c", "value": 2, "op": "<=", "bar": 4, "ok": true}]);
        let error = page(&layout("rows = []"), &stored(bars), "").unwrap_err();
        assert!(error.to_string().contains("`c` is in 0 rows"), "{error}");
    }

    #[test]
    fn numbers_have_three_digits_and_groups_of_thousands() {
        let texts = [0.0, 0.001364, 0.9999, 12.0, -24.54, 33660.0, 38109.163].map(number);
        assert_eq!(texts, ["0", "0.00136", "1", "12", "−24.5", "33,660", "38,109"]);
        assert_eq!(show_against(&json!(0.9497), &json!(0.95)), "0.9497");
    }
}
