//! Stores results, and renders `bench/RESULTS.md` from them.
//!
//! `bench/results/NAME.json` has the figures of one experiment and the commit that they were
//! measured on. `bench/results/layout.toml` lists the tables of `bench/RESULTS.md`, and says which
//! figures each row shows. The page and its charts are a pure function of these files.

mod page;
mod page_charts;
mod page_layout;
mod stored_result;

use std::collections::BTreeMap;
use std::process::Command;

use page_layout::Layout;
use stored_result::Stored;

use crate::{Fallible, output_files};

const PAGE: &str = "RESULTS.md";

/// Stores a result (`line`, the JSON object that an experiment prints last) in
/// `bench/results/NAME.json`, with the current commit and machine, and writes the pages and charts
/// of the experiment. Returns a message for the user.
///
/// # Errors
///
/// Returns an error if `line` is not a result, if git fails, or if the file cannot be written.
pub(crate) fn record(line: &str) -> Fallible<String> {
    let (result, pages) = Stored::from_line(line, &commit()?, &machine())?;
    let file = format!("{}.json", result.name);
    output_files::write(&output_files::folder("results"), &file, &result.to_text())?;
    for (path, text) in &pages {
        output_files::write(&output_files::folder(""), path, text)?;
    }
    Ok(format!("bench/results/{file} written; `make results` renders bench/RESULTS.md"))
}

/// Renders `bench/RESULTS.md` and its charts from the stored results. Returns a message for the
/// user.
///
/// # Errors
///
/// Returns an error if a file is missing or malformed, or if the layout does not show each bar
/// exactly once.
pub(crate) fn render() -> Fallible<String> {
    let rendered = rendered()?;
    for (name, text) in &rendered {
        output_files::write(&output_files::folder(""), name, text)?;
    }
    Ok(format!("{} written", rendered.keys().cloned().collect::<Vec<_>>().join(", ")))
}

/// Returns the texts of the page and its charts. The keys are their paths below `bench/`.
fn rendered() -> Fallible<BTreeMap<String, String>> {
    let folder = output_files::folder("results");
    let layout = Layout::parse(&std::fs::read_to_string(folder.join("layout.toml"))?)?;
    let results = Stored::read_all(&folder)?;
    let shortfalls = std::fs::read_to_string(output_files::folder("shortfalls.md"))?;
    let mut rendered = page_charts::draw_all(&results)?;
    rendered.insert(PAGE.to_owned(), page::page(&layout, &results, &shortfalls)?);
    Ok(rendered)
}

/// Returns the short hash of the current commit, followed by " with changes" if tracked files
/// differ from it. Result files are ignored.
fn commit() -> Fallible<String> {
    let git = |arguments: &[&str]| -> Fallible<String> {
        let output = Command::new("git").current_dir(output_files::folder("")).args(arguments).output()?;
        if !output.status.success() {
            return Err(format!("git {} failed", arguments.join(" ")).into());
        }
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let hash = git(&["rev-parse", "--short=7", "HEAD"])?;
    let written = [":/", ":!results", ":!RESULTS.md", ":!adaptive", ":!pool", ":!sweep"];
    let changed = git(&[&["status", "--porcelain", "--untracked-files=no", "--"], &written[..]].concat())?;
    Ok(if changed.is_empty() { hash } else { format!("{hash} with changes") })
}

/// Returns the number of cores, the operating system and the architecture, as text.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores, {} {}", std::env::consts::OS, std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_page_and_charts_equal_the_rendered_ones() {
        for (name, text) in rendered().unwrap() {
            let committed = std::fs::read_to_string(output_files::folder(&name)).unwrap_or_default();
            assert!(committed.trim_end() == text.trim_end(), "bench/{name} is stale: run `make results`");
        }
    }

    #[test]
    fn shortfalls_name_each_experiment_that_misses_a_bar() {
        let shortfalls = std::fs::read_to_string(output_files::folder("shortfalls.md")).unwrap();
        for result in Stored::read_all(&output_files::folder("results")).unwrap().values() {
            let is_named = shortfalls.contains(&format!("`{}`", result.name));
            let missed = result.bars.iter().find(|bar| !bar.ok);
            assert!(is_named || missed.is_none(), "{}: {missed:?}", result.name);
        }
    }

    #[test]
    fn page_has_at_most_300_lines() {
        let lines = std::fs::read_to_string(output_files::folder(PAGE)).unwrap().lines().count();
        assert!(lines <= 300, "{lines} lines");
    }
}
