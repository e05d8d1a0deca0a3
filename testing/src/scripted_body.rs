//! A response body whose parts are sent at their times on tokio's clock.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tidegate::Error;
use tokio::time::{Instant, Sleep};

use crate::in_flight::InFlight;
use crate::response::{BodyEvent, BodyStep};

/// A response body. Its attempt ends with its last part, or when the body is dropped before that.
pub(crate) struct ScriptedBody {
    start: Instant,
    steps: VecDeque<BodyStep>,
    sleep: Option<Pin<Box<Sleep>>>,
    length: Option<u64>,
    in_flight: Option<InFlight>,
}

impl ScriptedBody {
    pub(crate) fn new(steps: VecDeque<BodyStep>, length: Option<u64>, in_flight: InFlight) -> Self {
        let mut body = Self { start: Instant::now(), steps, sleep: None, length, in_flight: Some(in_flight) };
        body.end_if_done();
        body
    }

    fn end_if_done(&mut self) {
        if self.steps.is_empty()
            && let Some(in_flight) = self.in_flight.take()
        {
            in_flight.answered();
        }
    }
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some(step) = self.steps.front() else { return Poll::Ready(None) };
        let due = self.start + step.at;
        if due > Instant::now() {
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            ready!(sleep.as_mut().poll(cx));
        }
        self.sleep = None;
        if matches!(self.steps.front(), Some(BodyStep { event: BodyEvent::Silence, .. })) {
            return Poll::Pending;
        }
        let step = self.steps.pop_front();
        self.end_if_done();
        Poll::Ready(match step.map(|step| step.event) {
            Some(BodyEvent::Chunk(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(BodyEvent::Fail(kind, why)) => Some(Err(Error::new(kind, why))),
            Some(BodyEvent::Silence | BodyEvent::End) | None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map(SizeHint::with_exact).unwrap_or_default()
    }
}
