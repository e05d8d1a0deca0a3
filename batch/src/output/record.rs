//! One line of what is written, as OpenAI's batches have it.
//!
//! `id` says which line of the input it is of, and by its checksum which text stood there: all that is needed to go on after a crash, and no file beside the output.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::fault::Fault;
use crate::input::Sum;

/// What begins every `id`.
const ID: &str = "batch_req_";

/// What every line that we write begins with.
pub(crate) const BEGINNING: &str = "{\"id\":\"batch_req_";

/// What became of a line.
#[derive(Clone, Debug)]
pub struct Record {
    /// The line's number.
    pub line: u64,
    /// And its checksum.
    pub sum: Sum,
    /// What the user knows it by.
    pub custom_id: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a request.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The provider has answered: with a status, good or bad.
    Answered(Answer),
    /// It has not, or was not asked.
    Failed(Fault),
}

/// A provider's answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The provider's own name for the request; empty where it gave none.
    pub request_id: String,
    /// JSON in one line.
    pub body: Box<RawValue>,
}

impl Outcome {
    /// Whether it is what was asked for.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Answered(Answer { status: 200..300, .. }))
    }
}

impl Answer {
    /// An answer's body is written as it came but for its line ends; one that is no JSON as a string.
    pub fn new(status: u16, request_id: impl Into<String>, body: &Bytes) -> Self {
        Self { status, request_id: request_id.into(), body: one_line(body) }
    }
}

/// Between the values of JSON a line's end is a blank, and within a string there is none.
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
struct Written<'a> {
    id: String,
    custom_id: &'a str,
    response: Option<Response<'a>>,
    error: Option<&'a Fault>,
}

#[derive(Serialize)]
struct Response<'a> {
    status_code: u16,
    request_id: &'a str,
    body: &'a RawValue,
}

impl Record {
    /// The line, with its end.
    ///
    /// # Errors
    /// None in practice: everything in it is text.
    pub(crate) fn write(&self, into: &mut Vec<u8>) -> serde_json::Result<()> {
        let (response, error) = match &self.outcome {
            Outcome::Answered(Answer { status, request_id, body }) => {
                (Some(Response { status_code: *status, request_id, body }), None)
            }
            Outcome::Failed(fault) => (None, Some(fault)),
        };
        let id = format!("{ID}{}_{:08x}", self.line, self.sum.0);
        serde_json::to_writer(&mut *into, &Written { id, custom_id: &self.custom_id, response, error })?;
        into.push(b'\n');
        Ok(())
    }
}

/// What a line says that was written once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) line: u64,
    pub(crate) sum: Sum,
    pub(crate) good: bool,
}

/// `None`: it is none of ours, or not whole.
pub(crate) fn read(text: &[u8]) -> Option<Read> {
    #[derive(Deserialize)]
    struct Whole<'a> {
        id: &'a str,
        response: Option<Status>,
    }
    #[derive(Deserialize)]
    struct Status {
        status_code: u16,
    }
    let whole: Whole<'_> = serde_json::from_slice(text).ok()?;
    let (line, sum) = whole.id.strip_prefix(ID)?.split_once('_')?;
    let good = whole.response.is_some_and(|response| (200..300).contains(&response.status_code));
    Some(Read { line: line.parse().ok()?, sum: Sum(u32::from_str_radix(sum, 16).ok()?), good })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn written(outcome: Outcome) -> Vec<u8> {
        let mut text = Vec::new();
        let record = Record { line: 12, sum: Sum(0xab), custom_id: "a\n\"b".into(), outcome };
        record.write(&mut text).unwrap();
        assert!(text.starts_with(BEGINNING.as_bytes()) && text.ends_with(b"\n"));
        assert_eq!(memchr::memchr_iter(b'\n', &text).count(), 1);
        text
    }

    #[test]
    fn as_openai_writes_it() {
        let body = Bytes::from_static(b"{\n  \"choices\": [1.0],\r\n \"text\": \"a\\nb\"}\n");
        let text = written(Outcome::Answered(Answer::new(200, "req_1", &body)));
        let value: Value = serde_json::from_slice(&text).unwrap();
        let expected = json!({"id": "batch_req_12_000000ab", "custom_id": "a\n\"b",
            "response": {"status_code": 200, "request_id": "req_1", "body": {"choices": [1.0], "text": "a\nb"}}, "error": null});
        assert_eq!(value, expected);
        assert_eq!(read(&text), Some(Read { line: 12, sum: Sum(0xab), good: true }));

        let text = written(Outcome::Answered(Answer::new(502, "", &Bytes::from_static(b"<html>\xff\n"))));
        let value: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["response"]["body"], "<html>\u{fffd}\n");
        assert!(read(&text).is_some_and(|read| !read.good));

        let text = written(Outcome::Failed(Fault::new("invalid_url", "no")));
        let value: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["error"], json!({"code": "invalid_url", "message": "no"}));
        assert_eq!(value["response"], Value::Null);
        assert!(read(&text).is_some_and(|read| !read.good));
    }

    #[test]
    fn others_lines_are_not_ours() {
        for text in [
            "",
            "{}",
            "{\"id\":\"batch_req_abc\"}",
            "{\"id\":\"batch_req_1_zz\"}",
            "{\"id\":\"batch_req_1_00000000\"",
        ] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
    }
}
