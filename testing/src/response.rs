//! A scripted response, before it is played.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tidegate::ErrorKind;

/// A part of the body, and its time after the response head.
pub(crate) struct BodyStep {
    pub(crate) at: Duration,
    pub(crate) what: BodyEvent,
}

pub(crate) enum BodyEvent {
    Chunk(Bytes),
    /// Nothing, forever.
    Silence,
    /// The exchange fails with this error.
    Fail(ErrorKind, &'static str),
}

/// A response that is ready to be played.
pub(crate) struct ScriptedResponse {
    pub(crate) answer: &'static str,
    /// Delay before the response head or the refusal.
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
            [BodyStep { at: Duration::ZERO, what: BodyEvent::Chunk(body) }].into()
        };
        Self {
            answer: "status",
            after: Duration::ZERO,
            head: Some(ResponseHead { status, headers, length: Some(length) }),
            steps,
        }
    }
}
