//! The response to one request, made from a script's answer.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tidegate::ErrorKind;

/// A part of the response body, and the time between the response head and this part.
pub(crate) struct BodyStep {
    pub(crate) at: Duration,
    pub(crate) event: BodyEvent,
}

pub(crate) enum BodyEvent {
    Chunk(Bytes),
    /// Nothing more is ever sent, and the body never ends.
    Silence,
    /// The body ends.
    End,
    /// The body ends with this error.
    Fail(ErrorKind, &'static str),
}

/// A response with the times at which its parts are sent.
pub(crate) struct ScriptedResponse {
    pub(crate) answer: &'static str,
    /// Delay before the response head is sent or the connection is refused.
    pub(crate) after: Duration,
    /// Response head, or `None` if the connection is refused.
    pub(crate) head: Option<ResponseHead>,
    pub(crate) steps: VecDeque<BodyStep>,
}

pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) length: Option<u64>,
}

impl ScriptedResponse {
    pub(crate) fn whole(status: StatusCode, mut headers: HeaderMap, body: Bytes) -> Self {
        let length = body.len() as u64;
        headers.insert(http::header::CONTENT_LENGTH, length.into());
        let steps = if body.is_empty() {
            VecDeque::new()
        } else {
            [BodyStep { at: Duration::ZERO, event: BodyEvent::Chunk(body) }].into()
        };
        Self {
            answer: "status",
            after: Duration::ZERO,
            head: Some(ResponseHead { status, headers, length: Some(length) }),
            steps,
        }
    }
}
