//! Multipart forms (`multipart/form-data`), which audio and image endpoints use for uploads.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use memchr::memmem;

use super::{body_fields::BodyFields, parse_model};
use crate::prompt::{Prompt, Task};

/// Maximum length in bytes of a form field that is read as text. Longer fields are ignored.
const MAX_FIELD: usize = 64 * 1024;

/// Returns `true` if the content type is a multipart form.
pub(super) fn is_multipart(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"multipart/"))
}

/// Returns the boundary between the parts of the form, or `None` if it is missing, empty, or longer
/// than the 70 characters that RFC 2046 allows.
fn boundary(headers: &HeaderMap) -> Option<&str> {
    let boundary = parameter(headers.get(CONTENT_TYPE)?.to_str().ok()?, "boundary")?;
    (1..=70).contains(&boundary.len()).then_some(boundary)
}

/// Reads the fields of a form. Files count by their size and type only. Returns the default if the
/// boundary is missing or invalid.
pub(super) fn read(headers: &HeaderMap, body: &[u8], task: Task) -> BodyFields {
    let mut fields = BodyFields::default();
    let Some(boundary) = boundary(headers) else { return fields };
    let mut prompt = Prompt::default();
    for (part, whole) in parts(body, boundary) {
        let Some((head, value)) = split(part) else { continue };
        let parameter = |name| parameter(line(head, "content-disposition")?, name);
        if parameter("filename").is_some() {
            let format = line(head, "content-type").map(str::trim);
            prompt.add_file(task, format, value.len() as u64);
            continue;
        }
        let text = Some(value).filter(|value| whole && value.len() <= MAX_FIELD);
        let Some(text) = text.and_then(|value| std::str::from_utf8(value).ok()) else { continue };
        match parameter("name") {
            Some("model") => fields.model = parse_model(text),
            Some("stream") => fields.stream = text == "true",
            Some(name) => prompt.add_field(name, text),
            None => {}
        }
    }
    fields.prompt = Some(prompt);
    fields
}

/// Estimates the prompt from the `content-length` of an upload whose body is unavailable. The
/// prompt is `None` if the length is missing or the task takes no audio or image.
pub(super) fn from_headers(headers: &HeaderMap, task: Task) -> BodyFields {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let prompt = length.filter(|_| matches!(task, Task::Transcribe | Task::Image)).map(|length| {
        let mut prompt = Prompt::default();
        prompt.add_file(task, None, length);
        prompt
    });
    BodyFields { prompt, ..BodyFields::default() }
}

/// Returns the parts between the boundaries, each with `true` if its end was found. Only the last
/// part of a truncated form is incomplete.
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

/// Splits a part into its headers and its content. Returns `None` if it has no empty line or its
/// headers are not UTF-8.
fn split(part: &[u8]) -> Option<(&str, &[u8])> {
    let at = memmem::find(part, b"\r\n\r\n")?;
    Some((std::str::from_utf8(part.get(..at)?).ok()?, part.get(at + 4..)?))
}

/// Returns the value of the header `name` in the headers of a part, or `None` if the part has no
/// such header.
fn line<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n").find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// Returns a parameter of a header value such as `form-data; name="model"`, without quotes, or
/// `None` if it is missing.
fn parameter<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    value.split(';').skip(1).find_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        // `filename*` states the same name in another encoding.
        let key = key.trim().trim_end_matches('*');
        key.eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"'))
    })
}
