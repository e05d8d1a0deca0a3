use http::Uri;

use super::vllm::endpoint;
use tidegate_protocol::Dialect;

#[test]
fn tokenize_has_the_same_root_as_the_versioned_api() {
    let of =
        |dialect, uri: &'static str| endpoint(dialect, &Uri::from_static(uri)).map(|uri| uri.to_string());
    for (dialect, uri, wanted) in [
        (Dialect::OpenAiChat, "http://h:8000/v1/chat/completions", Some("http://h:8000/tokenize")),
        (Dialect::OpenAiChat, "http://h/a/b/v1/chat/completions/", Some("http://h/a/b/tokenize")),
        (Dialect::OpenAiCompletions, "http://h/v1/completions?k=1", Some("http://h/tokenize?k=1")),
        (Dialect::OpenAiCompletions, "http://h/openai/deployments/m/completions", None),
        (Dialect::OpenAiResponses, "http://h/v1/responses", None),
    ] {
        assert_eq!(of(dialect, uri).as_deref(), wanted, "{uri}");
    }
}
