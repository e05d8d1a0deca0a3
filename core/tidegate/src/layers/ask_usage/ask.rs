//! Adds the option that requests token usage to the body of a request.

use tidegate_protocol::json_edit::Object;

/// The member of the request body that contains the options of a stream.
const OPTIONS: &str = "stream_options";
/// The stream option that requests token usage, which OpenAI then sends in an additional last
/// chunk.
const INCLUDE: &str = "include_usage";
/// The stream option of vLLM that requests usage in every chunk. vLLM ignores the option unless
/// usage is requested.
const CONTINUOUS: &str = "continuous_usage_stats";

/// Returns the request body with `stream_options.include_usage` set to `true`. Returns `None` if
/// the body already sets one of the usage options, or if the body or its `stream_options` is not a
/// JSON object.
pub(super) fn with_usage(body: &[u8]) -> Option<Vec<u8>> {
    let request = Object::read(body)?;
    let Some(options) = request.last(OPTIONS).filter(|options| options.value != "null") else {
        return Some(request.set(OPTIONS, r#"{"include_usage":true}"#));
    };
    let own = Object::read(options.value.as_bytes())?;
    if own.last(INCLUDE).is_some() || own.last(CONTINUOUS).is_some() {
        return None;
    }
    let extended = String::from_utf8(own.set(INCLUDE, "true")).ok()?;
    Some(request.replace(options, &extended))
}

#[cfg(test)]
mod tests {
    use super::with_usage;

    #[test]
    fn usage_is_requested_if_the_caller_does_not_set_it() {
        for (body, expected) in [
            (
                r#"{"model":"m","stream":true}"#,
                r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#,
            ),
            (
                r#"{"stream_options":null, "n":1.50}"#,
                r#"{"stream_options":{"include_usage":true}, "n":1.50}"#,
            ),
            (r#"{"stream_options":{},"a":1}"#, r#"{"stream_options":{"include_usage":true},"a":1}"#),
            (
                r#"{"stream_options":{"include_obfuscation":false }}"#,
                r#"{"stream_options":{"include_obfuscation":false,"include_usage":true }}"#,
            ),
            // Servers use the last of duplicate keys.
            (
                r#"{"stream_options":{"include_usage":true},"stream_options":{}}"#,
                r#"{"stream_options":{"include_usage":true},"stream_options":{"include_usage":true}}"#,
            ),
        ] {
            assert_eq!(with_usage(body.as_bytes()).as_deref(), Some(expected.as_bytes()), "{body}");
        }
    }

    #[test]
    fn request_that_sets_include_usage_is_unchanged() {
        for body in [
            r#"{"stream_options":{"include_usage":true}}"#,
            r#"{"stream_options":{"include_usage":false}}"#,
            r#"{"stream_options":{"include_us\u0061ge":null}}"#,
            r#"{"stream_options":{"continuous_usage_stats":true}}"#,
            r#"{"stream_options":"all"}"#,
            r#"{"stream": true"#,
            "[]",
            "",
        ] {
            assert_eq!(with_usage(body.as_bytes()), None, "{body}");
        }
    }
}
