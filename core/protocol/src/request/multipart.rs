//! Forms (`multipart/form-data`): audio and image calls, with files among their fields.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use memchr::memmem;

use super::body_fields::BodyFields;
use super::parse_model;
use crate::prompt::{Prompt, Task};

/// The longest field that is read as text: a prompt.
const MAX_FIELD: usize = 64 * 1024;

pub(super) fn is_multipart(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"multipart/"))
}

/// The boundary of a form's parts, by RFC 2046 at most 70 characters.
fn boundary(headers: &HeaderMap) -> Option<&str> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let value = kind.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
    })?;
    (1..=70).contains(&value.len()).then_some(value)
}

/// Reads a form. Files count by their size, never by what is in them.
pub(super) fn read(headers: &HeaderMap, body: &[u8], task: Task) -> BodyFields {
    let mut fields = BodyFields::default();
    let Some(boundary) = boundary(headers) else { return fields };
    let mut prompt = Prompt::default();
    for (part, whole) in parts(body, boundary) {
        let Some((head, value)) = split(part) else { continue };
        if parameter(head, "filename").is_some() {
            let format = line(head, "content-type").map(str::trim);
            prompt.file(task, format, value.len() as u64);
            continue;
        }
        let text = Some(value).filter(|value| whole && value.len() <= MAX_FIELD);
        let Some(text) = text.and_then(|value| std::str::from_utf8(value).ok()) else { continue };
        match parameter(head, "name") {
            Some("model") => fields.model = parse_model(text),
            Some("stream") => fields.stream = text == "true",
            Some(name) => prompt.field(name, text),
            None => {}
        }
    }
    fields.prompt = Some(prompt);
    fields
}

/// What an upload that is not at hand will be, by how long it says it is.
pub(super) fn from_headers(headers: &HeaderMap, task: Task) -> Option<Prompt> {
    if !matches!(task, Task::Transcribe | Task::Image) {
        return None;
    }
    let length = headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()?;
    let mut prompt = Prompt::default();
    prompt.file(task, None, length);
    Some(prompt)
}

/// What stands between the boundaries, and whether it is whole: of a form that is cut off the last part ends with what there is.
fn parts<'a>(body: &'a [u8], boundary: &str) -> impl Iterator<Item = (&'a [u8], bool)> {
    let delimiter = format!("--{boundary}");
    let finder = memmem::Finder::new(&delimiter).into_owned();
    let length = delimiter.len();
    let mut rest = finder.find(body).and_then(|at| body.get(at + length..));
    std::iter::from_fn(move || {
        let from = rest?.strip_prefix(b"\r\n")?;
        let end = finder.find(from);
        rest = end.and_then(|at| from.get(at + length..));
        let part = from.get(..end.unwrap_or(from.len()))?;
        Some((part.strip_suffix(b"\r\n").unwrap_or(part), end.is_some()))
    })
}

/// The head of a part, and what it is the head of.
fn split(part: &[u8]) -> Option<(&str, &[u8])> {
    let at = memmem::find(part, b"\r\n\r\n")?;
    Some((std::str::from_utf8(part.get(..at)?).ok()?, part.get(at + 4..)?))
}

fn line<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n").find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// A parameter of its `Content-Disposition`.
fn parameter<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    line(head, "content-disposition")?.split(';').skip(1).find_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        // `filename*` says the same in another alphabet.
        let key = key.trim().trim_end_matches('*');
        key.eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"'))
    })
}
