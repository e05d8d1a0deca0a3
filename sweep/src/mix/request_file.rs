//! Reads the user's requests from a JSONL file. A line is a request body, a line of OpenAI's batch
//! format, `{"prompt": "..."}`, or a JSON string with a prompt.

use serde_json::{Map, Value};

/// A parsed line of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RequestLine {
    /// A prompt without a body. The sweep builds the body.
    Prompt {
        text: String,
        /// Value of `max_tokens`, or `None` if the line has none.
        output: Option<u64>,
    },
    /// A complete request body.
    Body(Map<String, Value>),
}

pub(super) fn read(text: &str) -> Result<Vec<RequestLine>, String> {
    let mut lines = Vec::new();
    let text = text.trim_start_matches('\u{feff}');
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let with_line = |problem: &str| format!("line {}: {problem}", number + 1);
        let value: Value =
            serde_json::from_str(line).map_err(|error| with_line(&format!("is not valid JSON: {error}")))?;
        lines.push(parse_line(value).map_err(with_line)?);
    }
    if lines.is_empty() { Err("the file has no lines".to_owned()) } else { Ok(lines) }
}

fn parse_line(value: Value) -> Result<RequestLine, &'static str> {
    let Value::Object(mut object) = value else {
        return match value {
            Value::String(text) => Ok(RequestLine::Prompt { text, output: None }),
            _ => Err("must be an object: a request body, a batch line, or {\"prompt\": \"...\"}"),
        };
    };
    // A batch line contains the body.
    if object.contains_key("body") || object.contains_key("url") {
        return match object.remove("body") {
            Some(Value::Object(body)) => Ok(RequestLine::Body(body)),
            _ => Err("is a batch line without a body"),
        };
    }
    // As in the input of `tidegate run`, a body may have a name, which is not sent.
    object.shift_remove("custom_id");
    if ["messages", "input", "contents"].iter().any(|key| object.contains_key(*key)) {
        return Ok(RequestLine::Body(object));
    }
    match object.get("prompt") {
        // A prompt together with a model is a body for completions.
        Some(_) if object.contains_key("model") => Ok(RequestLine::Body(object)),
        Some(Value::String(text)) => {
            let output = object.get("max_tokens").and_then(Value::as_u64);
            Ok(RequestLine::Prompt { text: text.clone(), output })
        }
        Some(_) => Ok(RequestLine::Body(object)),
        None => Err("has no messages, prompt, input or batch body"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(value: Value) -> Result<RequestLine, String> {
        Ok(read(&value.to_string())?.remove(0))
    }

    #[test]
    fn reads_bodies_batch_lines_and_prompts() {
        let body = json!({"model": "m", "messages": []});
        let Value::Object(inner) = body.clone() else { unreachable!() };
        assert_eq!(line(body.clone()), Ok(RequestLine::Body(inner.clone())));
        let batch = json!({"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": body});
        assert_eq!(line(batch), Ok(RequestLine::Body(inner)));
        assert_eq!(
            line(json!({"prompt": "hi", "max_tokens": 3})),
            Ok(RequestLine::Prompt { text: "hi".into(), output: Some(3) })
        );
        assert!(matches!(line(json!({"prompt": "hi", "model": "m"})), Ok(RequestLine::Body(_))));
        let named = json!({"custom_id": "a", "model": "m", "messages": []});
        assert_eq!(line(named), line(json!({"model": "m", "messages": []})));
    }

    #[test]
    fn invalid_line_is_reported_by_number() {
        for (text, expected) in [
            ("\n{\"a\": 1}", "line 2"),
            ("{", "line 1: is not valid JSON"),
            ("[1]", "object"),
            ("{\"url\": \"x\"}", "without a body"),
            ("", "no lines"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
