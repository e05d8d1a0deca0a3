//! Summarizes an input before anything is sent.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::BufRead;

use http::{HeaderMap, Method, Uri};
use serde::Serialize;
use tidegate::protocol::RequestFacts;

use crate::input::{Lines, Request, RequestOverrides, parse_request};
use crate::output::AnsweredLines;
use crate::run::{Ceilings, Prices, RunError, Spend, SpendTracker};

/// Summary of an input.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Survey {
    /// Number of lines, without blank lines.
    pub lines: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Lines that a previous run answered.
    pub done: u64,
    /// Invalid lines by error code, with their number and the message of the first one.
    pub malformed: BTreeMap<String, (u64, String)>,
    /// Number of requests by model.
    pub models: BTreeMap<String, u64>,
    /// Maximum usage of the remaining requests: input estimated from its bytes, and the output that
    /// they allow, or 1,024 tokens if they set no limit.
    pub most: Spend,
}

/// Maximum number of models counted separately. Further models are counted as `others`.
const MAX_MODELS: usize = 20;

/// Counts lines and compares them with earlier answers. With `requests`, also parses the requests.
///
/// # Errors
///
/// Returns the error of the reader, and an error if the input has changed.
pub fn survey<R: BufRead>(
    mut lines: Lines<R>,
    limit: Option<u64>,
    found: &AnsweredLines,
    requests: Option<(&RequestOverrides, Prices)>,
) -> Result<Survey, RunError> {
    let (mut survey, mut last) = (Survey::default(), 0);
    let (mut ids, hasher) = (HashSet::new(), RandomState::new());
    let tracker =
        SpendTracker::new(requests.map(|(_, prices)| prices).unwrap_or_default(), Ceilings::default());
    while limit.is_none_or(|limit| survey.lines < limit) {
        let Some(line) = lines.next_line()? else { break };
        survey.lines += 1;
        last = line.number;
        let done = found.matches(&line);
        if done == Some(false) {
            return Err(RunError::InputChanged(line.number));
        }
        survey.done += u64::from(done.is_some());
        let Some((overrides, _)) = requests else { continue };
        let mut wrong = |code: &str, message: String| {
            survey.malformed.entry(code.to_owned()).or_insert((0, message)).0 += 1;
        };
        match line.text.as_ref().map(|text| parse_request(line.number, text, overrides)) {
            None => wrong("line_too_long", format!("line {} is too long", line.number)),
            Some(Err((_, fault))) => wrong(&fault.code, fault.message),
            Some(Ok(request)) if !ids.insert(hasher.hash_one(&request.custom_id)) => {
                let text = format!("line {}: its \"custom_id\" repeats that of an earlier line", line.number);
                wrong("duplicate_custom_id", text);
            }
            Some(Ok(_)) if done.is_some() => {}
            Some(Ok(request)) => survey.count(&request, &tracker),
        }
    }
    // A shortened file has changed too.
    if limit.is_none() && found.last() > last {
        return Err(RunError::InputChanged(found.last()));
    }
    survey.bytes = lines.position();
    Ok(survey)
}

impl Survey {
    fn count(&mut self, request: &Request, tracker: &SpendTracker) {
        let Ok(uri) = request.path.parse::<Uri>() else { return };
        let facts = RequestFacts::read(&Method::POST, &uri, &HeaderMap::new(), Some(&request.body));
        self.most.plus(&tracker.maximum(&facts));
        let model = facts.model.as_deref().unwrap_or("unknown");
        let known = self.models.contains_key(model) || self.models.len() < MAX_MODELS;
        *self.models.entry(if known { model } else { "others" }.to_owned()).or_default() += 1;
    }
}
