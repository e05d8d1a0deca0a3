//! Tests of the reports. Also writes the pages for the browser test.

mod samples;

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;
use tidegate_sweep::report::{Figure, card, csv, figure, html, json};
use tidegate_sweep::search_result::{Estimate, LatencyQuantiles};
use tidegate_sweep::sweep_outcome::{FORMAT, SweepOutcome};

/// Writes the HTML page of each sample outcome to the directory from which the browser test opens
/// them.
#[test]
fn writes_pages_for_the_browser_test() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sweep-report");
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, outcome) in samples::all() {
        std::fs::write(folder.join(format!("{name}.html")), html(&outcome)).expect("a page");
    }
}

#[test]
fn page_starts_with_the_answer() {
    let page = html(&samples::limit());
    let texts =
        ["Hold the cap at <strong>24</strong>", "exactly 24", "confirmed", "concurrency limit", "cap = 24"];
    let positions: Vec<_> = texts.iter().map(|text| page.find(text)).collect();
    assert!(positions.iter().all(Option::is_some), "{texts:?} at {positions:?}");
    assert!(positions.iter().max() < Some(&page.find("<svg")), "the plots come after it");
}

#[test]
fn outside_text_is_escaped() {
    for rendered in [html(&samples::hostile()), card(&samples::hostile())] {
        assert!(!rendered.contains("<img"));
        assert!(!rendered.contains("<script>document"));
        assert_eq!(rendered.matches("</style>").count(), rendered.matches("<style>").count());
    }
}

#[test]
fn quantiles_of_too_few_samples_are_omitted() {
    for (name, outcome) in samples::all() {
        assert!(!html(&outcome).contains("of 299"), "{name}");
    }
}

#[test]
fn page_explains_the_limit_once() {
    let outcome = samples::engine();
    let page = html(&outcome);
    assert_eq!(page.matches(&outcome.answer.because).count(), 1);
    assert!(!page.contains("More concurrency does not raise"));
}

#[test]
fn wide_interval_has_no_band() {
    for (interval, bands) in [((14, 18), true), ((2, 64), false)] {
        let mut outcome = samples::engine();
        outcome.answer.interval = Some(interval);
        let plot = figure(&outcome, Figure::Ttft);
        assert_eq!(plot.contains("<rect class=\"tg-band\""), bands, "{interval:?}");
    }
}

#[test]
fn page_shows_the_metrics_of_the_engine() {
    let page = html(&samples::engine());
    for text in ["Engine queue", "KV cache", "empted", "37 %", "16 running"] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!html(&samples::limit()).contains("Engine queue"));
}

#[test]
fn every_figure_is_a_standalone_document() {
    for (name, outcome) in samples::all() {
        for which in Figure::ALL {
            let document = figure(&outcome, which);
            let parsed = roxmltree::Document::parse(&document);
            let parsed = parsed.unwrap_or_else(|e| panic!("{name}, {which:?}: {e}"));
            let root = parsed.root_element();
            assert_eq!(root.tag_name().namespace(), Some("http://www.w3.org/2000/svg"));
            let actual: Vec<_> = root.children().take(2).map(|child| child.tag_name().name()).collect();
            assert_eq!(actual, ["title", "desc"], "{name}, {which:?}");
        }
    }
}

#[test]
fn csv_has_one_line_per_step_and_reads_back() {
    for (name, outcome) in samples::all() {
        let table = csv(&outcome);
        assert!(table.ends_with("\r\n"), "{name}");
        let mut reader = ::csv::Reader::from_reader(table.as_bytes());
        let header = reader.headers().expect("a header").clone();
        let lines: Vec<_> = reader.records().collect::<Result<_, _>>().expect("lines as long as the header");
        assert_eq!(lines.len(), outcome.steps.len(), "{name}");
        let column = |wanted: &str| header.iter().position(|name| name == wanted).expect("the column");
        for (line, step) in lines.iter().zip(&outcome.steps) {
            assert_eq!(line.get(column("cap")), Some(step.cap.to_string().as_str()));
            let failed: usize = step.failures.values().sum();
            let actual = header.iter().zip(line).filter(|(name, _)| name.starts_with("failed_"));
            assert_eq!(actual.map(|(_, n)| n.parse::<usize>().expect("a count")).sum::<usize>(), failed);
            assert!(
                !line.iter().any(|cell| cell == "NaN" || cell == "inf"),
                "{name}: what is no number is empty"
            );
        }
    }
}

/// The JSON report contains the keys on which its readers depend. Removing or renaming one requires
/// a new `FORMAT`; adding one does not.
#[test]
fn json_keeps_its_keys() {
    let actual: serde_json::Value = serde_json::from_str(&json(&samples::limit())).expect("JSON");
    let keys = |of: &serde_json::Value| -> BTreeSet<String> {
        of.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default()
    };
    assert_eq!(actual["format"], FORMAT);
    for (place, expected) in [
        ("", "answer calls checks ended format lines provenance series spend steps"),
        ("/answer", "because binding cap confirmed goodput interval notes open_above rpm throughput tpm"),
        ("/spend", "attempts cached_tokens calls input_tokens money output_tokens seconds"),
        ("/checks/0", "name passed told"),
        ("/calls/0", "failed first_try retried step"),
        ("/series/0", "at cap completed failed in_flight waiting"),
        ("/answer/throughput", "high low value"),
        ("/steps/0/ttft", "n p50 p95 p99"),
    ] {
        let keys = keys(actual.pointer(place).expect(place));
        let missing: Vec<_> = expected.split(' ').filter(|key| !keys.contains(*key)).collect();
        assert!(missing.is_empty(), "{place} lost {missing:?}");
    }
    let step = keys(&actual["steps"][0]);
    for key in "step cap purpose verdict began ended warm_up calls attempts failures throughput goodput latency ttft tpot in_flight gap_fraction forbidden".split(' ') {
        assert!(step.contains(key), "a step lost {key}");
    }
}

/// An outcome that is written as JSON and read back gives the same page, although the last digit of
/// its numbers may differ.
#[test]
fn json_reads_back() {
    for (name, outcome) in samples::all().into_iter().filter(|(name, _)| *name != "hostile") {
        let back: SweepOutcome = serde_json::from_str(&json(&outcome)).expect(name);
        assert!(html(&back) == html(&outcome), "{name}");
    }
}

proptest! {
    /// Marks stay inside their plot, whatever the values of the steps.
    #[test]
    fn marks_stay_within_their_plot(
        values in prop::collection::vec((prop::num::f64::ANY, prop::num::f64::ANY, 1_usize..100_000, 0_usize..50), 14),
    ) {
        let mut outcome = samples::limit();
        for (step, (a, b, cap, failed)) in outcome.steps.iter_mut().zip(values) {
            step.cap = cap;
            step.throughput = Some(Estimate { value: a, low: b, high: a });
            step.ttft = LatencyQuantiles { n: cap, p50: Some(b), p95: Some(a), p99: None };
            (step.in_flight, step.gap_fraction, step.forbidden) = (a, b, b);
            for n in step.failures.values_mut() {
                *n = failed;
            }
        }
        for which in Figure::ALL {
            let document = figure(&outcome, which);
            let parsed = roxmltree::Document::parse(&document).expect("XML");
            let view: Vec<f64> =
                parsed.root_element().attribute("viewBox").expect("a view").split(' ').map(|n| n.parse().expect("a number")).collect();
            for node in parsed.descendants().filter(roxmltree::Node::is_element) {
                for (names, end) in [(["x", "x1", "x2", "cx"], view[2]), (["y", "y1", "y2", "cy"], view[3])] {
                    for place in names.iter().filter_map(|name| node.attribute(*name)) {
                        let place: f64 = place.parse().expect("a number");
                        prop_assert!((-5.0..=end + 5.0).contains(&place), "{which:?}: {place} of {end}");
                    }
                }
            }
        }
    }
}
