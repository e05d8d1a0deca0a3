//! One record of the output, in OpenAI's batch format.
//!
//! The `id` of a record contains the number and the checksum of the input line, which is all that
//! is needed to resume after a crash.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::input::Checksum;
use crate::line_error::LineError;

/// Prefix of the `id` of every record.
const ID_PREFIX: &str = "batch_req_";

/// Text with which every record starts.
pub(crate) const RECORD_PREFIX: &str = "{\"id\":\"batch_req_";

/// The result of one input line, which becomes one line of the output.
#[derive(Clone, Debug)]
pub struct Record {
    /// Number of the input line, from 1.
    pub line: u64,
    /// Checksum of the input line.
    pub sum: Checksum,
    /// The line's `custom_id`. If it has none, `line-N` with its number, or `line-N-2` and so on if
    /// an earlier line has this `custom_id`.
    pub custom_id: String,
    /// The response, or the error if there is none.
    pub outcome: LineOutcome,
}

/// The result of an input line: the provider's response, or an error.
#[derive(Clone, Debug)]
pub enum LineOutcome {
    /// The provider answered, with any HTTP status.
    Answered(ProviderResponse),
    /// The provider did not answer, or the request was not sent because the line is invalid.
    Failed(LineError),
}

/// The complete response of a provider.
#[derive(Clone, Debug)]
pub struct ProviderResponse {
    /// HTTP status of the response. If the response is an error with the status of a success, the
    /// status that the error names, or 500.
    pub status: u16,
    /// The provider's identifier of the request, or empty if its headers have none.
    pub request_id: String,
    /// Body as JSON without line ends.
    pub body: Box<RawValue>,
}

impl LineOutcome {
    /// Returns `true` if the provider answered with a status from 200 to 299.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Answered(ProviderResponse { status: 200..300, .. }))
    }
}

impl ProviderResponse {
    /// Creates a response from the parts of an HTTP response. Line ends in the body are replaced by
    /// spaces, and a body that is not JSON becomes a JSON string.
    pub fn new(status: u16, request_id: impl Into<String>, body: &Bytes) -> Self {
        Self { status, request_id: request_id.into(), body: one_line(body) }
    }
}

/// Returns `body` as JSON without line ends, which are replaced by spaces. This does not change the
/// value, because in JSON a line end is whitespace and strings contain none. A body that is not
/// JSON becomes a JSON string.
fn one_line(body: &[u8]) -> Box<RawValue> {
    let text = String::from_utf8_lossy(body);
    let text = match memchr::memchr2(b'\n', b'\r', text.as_bytes()) {
        Some(_) => text.replace(['\n', '\r'], " "),
        None => text.into_owned(),
    };
    RawValue::from_string(text).unwrap_or_else(|_| {
        let quoted = serde_json::to_string(&String::from_utf8_lossy(body)).and_then(RawValue::from_string);
        quoted.unwrap_or_else(|_| RawValue::NULL.to_owned())
    })
}

#[derive(Serialize)]
struct RecordJson<'a> {
    id: String,
    custom_id: &'a str,
    response: Option<ResponseJson<'a>>,
    error: Option<&'a LineError>,
}

#[derive(Serialize)]
struct ResponseJson<'a> {
    status_code: u16,
    request_id: &'a str,
    body: &'a RawValue,
}

impl Record {
    /// Appends the record to `into` as one line of JSON, including the line end.
    ///
    /// # Errors
    ///
    /// Returns an error if the serializer does, which it never does in practice.
    pub(crate) fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        let (response, error) = match &self.outcome {
            LineOutcome::Answered(ProviderResponse { status, request_id, body }) => {
                (Some(ResponseJson { status_code: *status, request_id, body }), None)
            }
            LineOutcome::Failed(error) => (None, Some(error)),
        };
        let id = format!("{ID_PREFIX}{}_{:08x}", self.line, self.sum.0);
        serde_json::to_writer(&mut *into, &RecordJson { id, custom_id: &self.custom_id, response, error })?;
        into.push(b'\n');
        Ok(())
    }
}

/// The fields of an existing record that are needed to resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParsedRecord {
    pub(crate) line: u64,
    pub(crate) sum: Checksum,
    pub(crate) good: bool,
}

/// Parses a line of an existing output. Returns `None` if it is not a complete record.
pub(crate) fn parse(text: &[u8]) -> Option<ParsedRecord> {
    #[derive(Deserialize)]
    struct RecordHead<'a> {
        id: &'a str,
        response: Option<Status>,
    }
    #[derive(Deserialize)]
    struct Status {
        status_code: u16,
    }
    let head: RecordHead<'_> = serde_json::from_slice(text).ok()?;
    let (line, sum) = head.id.strip_prefix(ID_PREFIX)?.split_once('_')?;
    let good = head.response.is_some_and(|response| (200..300).contains(&response.status_code));
    Some(ParsedRecord { line: line.parse().ok()?, sum: Checksum(u32::from_str_radix(sum, 16).ok()?), good })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn written(outcome: LineOutcome) -> Vec<u8> {
        let mut text = Vec::new();
        let record = Record { line: 12, sum: Checksum(0xab), custom_id: "a\n\"b".into(), outcome };
        record.write(&mut text).unwrap();
        assert!(text.starts_with(RECORD_PREFIX.as_bytes()) && text.ends_with(b"\n"));
        assert_eq!(memchr::memchr_iter(b'\n', &text).count(), 1);
        text
    }

    #[test]
    fn records_have_openai_batch_format() {
        let body = Bytes::from_static(b"{\n  \"choices\": [1.0],\r\n \"text\": \"a\\nb\"}\n");
        let text = written(LineOutcome::Answered(ProviderResponse::new(200, "req_1", &body)));
        let value: Value = serde_json::from_slice(&text).unwrap();
        let expected = json!({"id": "batch_req_12_000000ab", "custom_id": "a\n\"b",
            "response": {"status_code": 200, "request_id": "req_1", "body": {"choices": [1.0], "text": "a\nb"}}, "error": null});
        assert_eq!(value, expected);
        assert_eq!(parse(&text), Some(ParsedRecord { line: 12, sum: Checksum(0xab), good: true }));

        let text = written(LineOutcome::Answered(ProviderResponse::new(
            502,
            "",
            &Bytes::from_static(b"<html>\xff\n"),
        )));
        let value: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["response"]["body"], "<html>\u{fffd}\n");
        assert!(parse(&text).is_some_and(|read| !read.good));

        let text = written(LineOutcome::Failed(LineError::new("invalid_url", "no")));
        let value: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["error"], json!({"code": "invalid_url", "message": "no"}));
        assert_eq!(value["response"], Value::Null);
        assert!(parse(&text).is_some_and(|read| !read.good));
    }

    #[test]
    fn foreign_lines_are_not_records() {
        for text in [
            "",
            "{}",
            "{\"id\":\"batch_req_abc\"}",
            "{\"id\":\"batch_req_1_zz\"}",
            "{\"id\":\"batch_req_1_00000000\"",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
