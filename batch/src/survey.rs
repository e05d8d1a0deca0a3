//! What a file holds, before anything is asked.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::BufRead;

use http::{HeaderMap, Method, Uri};
use serde::Serialize;
use tidegate::wire::RequestFacts;

use crate::input::{Lines, Request, RequestOverrides, parse_request};
use crate::output::AnsweredLines;
use crate::run::{Ceilings, Prices, RunError, Spend, SpendTracker};

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Survey {
    /// Lines, blank ones aside.
    pub lines: u64,
    /// Bytes of text.
    pub bytes: u64,
    /// Of the lines, those that a run before has answered.
    pub done: u64,
    /// Lines that are no requests, by what is wrong with them; and where the first of each is.
    pub malformed: BTreeMap<String, (u64, String)>,
    /// The requests by model.
    pub models: BTreeMap<String, u64>,
    /// What the requests that are left can take at most: input as estimated by its bytes, all the output that they allow, or 1,024 tokens where they do not say.
    pub most: Spend,
}

/// More models than this are counted as `others`.
const MAX_MODELS: usize = 20;

/// Counts lines and holds them against what was answered before; with `requests`, reads what stands in them too.
///
/// # Errors
/// As the reader's; where the input has changed since.
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
                let text = format!("line {}: its \"custom_id\" is that of a line before", line.number);
                wrong("duplicate_custom_id", text);
            }
            Some(Ok(_)) if done.is_some() => {}
            Some(Ok(request)) => survey.count(&request, &tracker),
        }
    }
    // A file that was cut short is another one too.
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
