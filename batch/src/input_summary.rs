//! Summarizes an input before any request is sent: counts its lines, models and invalid requests.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::BufRead;

use http::{HeaderMap, Method, Uri};
use serde::Serialize;
use tidegate::protocol::RequestFacts;

use crate::input::{Lines, Request, RequestOverrides, parse_request};
use crate::line_error::LineError;
use crate::output::AnsweredLines;
use crate::run::{Ceilings, Prices, RunError, Spend, SpendTracker};

/// Summary of an input.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Survey {
    /// Number of lines. Blank lines do not count.
    pub lines: u64,
    /// Number of bytes read, line ends included.
    pub bytes: u64,
    /// Number of lines that a previous run answered.
    pub done: u64,
    /// Invalid lines by error code: the number of such lines, and the message of the first one.
    /// Empty if requests were not parsed.
    pub malformed: BTreeMap<String, (u64, String)>,
    /// Number of requests by model, without those that a previous run answered. The first 20 models
    /// are counted separately, and all further ones together as `others`. Empty if requests were
    /// not parsed.
    pub models: BTreeMap<String, u64>,
    /// Maximum that the remaining requests can use: input tokens estimated from their bytes, and
    /// the output tokens that they allow, or 1,024 per answer plus its thinking limit if they set
    /// no maximum. 0 if requests were not parsed.
    #[serde(rename = "most")]
    pub max_spend: Spend,
}

/// Maximum number of models that are counted separately.
const MAX_MODELS: usize = 20;

/// Returns the numbers of all and of already answered lines of an input. If `requests` is `Some`,
/// also parses the requests with these settings, and estimates their cost with these prices. Reads
/// at most `limit` lines, or all if it is `None`.
///
/// # Errors
///
/// Returns [`RunError::Input`] if reading fails. Returns [`RunError::InputChanged`] or
/// [`RunError::FailedLineChanged`] if an answered line has another text now, and
/// [`RunError::InputChanged`] if all lines were read and the input ends before the last answered
/// line.
pub fn survey<R: BufRead>(
    mut lines: Lines<R>,
    limit: Option<u64>,
    answered: &AnsweredLines,
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
        let done = answered.matches(&line);
        if done == Some(false) {
            return Err(RunError::changed_line(line.number, answered));
        }
        survey.done += u64::from(done.is_some());
        let Some((overrides, _)) = requests else { continue };
        let mut record_invalid = |code: &str, message: String| {
            survey.malformed.entry(code.to_owned()).or_insert((0, message)).0 += 1;
        };
        match line.text.as_ref().map(|text| parse_request(line.number, text, overrides)) {
            None => {
                let error = LineError::line_too_long(line.number);
                record_invalid(&error.code, error.message);
            }
            Some(Err((custom_id, error))) => {
                ids.insert(hasher.hash_one(&custom_id));
                record_invalid(&error.code, error.message);
            }
            Some(Ok(request)) if request.is_named && !ids.insert(hasher.hash_one(&request.custom_id)) => {
                let text = format!("line {}: its \"custom_id\" repeats that of an earlier line", line.number);
                record_invalid("duplicate_custom_id", text);
            }
            Some(Ok(_)) if done.is_some() => {}
            Some(Ok(request)) => survey.count(&request, &tracker),
        }
    }
    // A shortened file has changed too.
    if limit.is_none() && answered.last() > last {
        return Err(RunError::InputChanged(answered.last()));
    }
    survey.bytes = lines.position();
    Ok(survey)
}

impl Survey {
    fn count(&mut self, request: &Request, tracker: &SpendTracker) {
        let Ok(uri) = request.path.parse::<Uri>() else { return };
        let facts = RequestFacts::read(&Method::POST, &uri, &HeaderMap::new(), Some(&request.body));
        self.max_spend.add(&tracker.max_spend(&facts));
        let model = facts.model.as_deref().unwrap_or("unknown");
        let known = self.models.contains_key(model) || self.models.len() < MAX_MODELS;
        *self.models.entry(if known { model } else { "others" }.to_owned()).or_default() += 1;
    }
}
