//! Errors in the format of the request's API.

use http::StatusCode;
use serde_json::{Value, json};

use super::request_shape::{Api, RequestShape};
use super::{gemini, sse};

/// Returns the JSON body of an error response with this status.
pub(super) fn body(status: StatusCode, shape: &RequestShape) -> Value {
    let message = match status.as_u16() {
        429 => "Rate limit reached.",
        503 | 529 => "Overloaded.",
        code if code >= 500 => "The server had an error while processing the request.",
        _ => "The request was rejected.",
    };
    match shape.api {
        Api::Messages => {
            return json!({"type": "error", "error": {"type": anthropic(status), "message": message}});
        }
        Api::Gemini => return gemini::error(status, message),
        Api::Chat | Api::Completions | Api::Responses | Api::Embeddings => {}
    }
    let (kind, code) = match status.as_u16() {
        401 => ("authentication_error", json!("invalid_api_key")),
        429 => ("rate_limit_error", json!("rate_limit_exceeded")),
        400..500 => ("invalid_request_error", Value::Null),
        503 => ("service_unavailable_error", json!("server_overloaded")),
        _ => ("server_error", Value::Null),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

/// Returns the event that ends a stream with status 200 with an error.
pub(super) fn event(shape: &RequestShape) -> String {
    let body = body(StatusCode::INTERNAL_SERVER_ERROR, shape);
    match shape.api {
        Api::Messages => sse::event(&body),
        Api::Gemini => sse::data(&body),
        Api::Responses => sse::event(&json!({
            "type": "error", "sequence_number": 0, "code": "server_error", "message": "The model failed.", "param": null,
        })),
        Api::Chat | Api::Completions | Api::Embeddings => format!("{}{}", sse::data(&body), sse::DONE),
    }
}

fn anthropic(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}
