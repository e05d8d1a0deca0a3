//! The fake target: a transport that answers from a script.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use parking_lot::Mutex;
use tidegate::wire::request::RequestFacts;
use tidegate::{Error, ErrorKind, RequestBody, ResponseBody, Transport};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::books::{Attempt, Books};
use crate::in_flight::{InFlight, State};
use crate::playback::{Playback, Played};
use crate::routes::{Choice, Place, Routes};
use crate::script::{Answer, Script};
use crate::wire::{self, Shape};

/// Answers from a script, and remembers what it saw. Cheap to clone; clones are the same target.
///
/// *Cancellation safety*: an attempt whose future or body is dropped before its end is remembered as cancelled, at that moment.
#[derive(Clone)]
pub struct FakeTarget(Arc<Mutex<State>>);

impl FakeTarget {
    /// A target that answers so. Its times count from now, unless [`FakeTarget::start`] says otherwise.
    pub fn new(script: Script) -> Self {
        Self(Arc::new(Mutex::new(State { routes: Routes::new(script, 0), books: Books::new() })))
    }

    /// Times of attempts count from that moment.
    pub fn start(&self, at: Instant) {
        self.0.lock().books.start = at;
    }

    /// Answers by another script from now on. What is in flight ends as it began.
    pub fn follow(&self, script: Script) {
        let mut state = self.0.lock();
        let era = state.routes.era() + 1;
        state.routes = Routes::new(script, era);
    }

    /// The same target as a gate takes it.
    pub fn transport(&self) -> Transport {
        let this = self.clone();
        Transport::new(tower::service_fn(move |request| this.clone().exchange(request)))
    }

    /// Every attempt so far, in the order of their arrival.
    pub fn attempts(&self) -> Vec<Attempt> {
        self.0.lock().books.attempts().to_vec()
    }

    /// Attempts whose answer has not ended.
    pub fn in_flight(&self) -> usize {
        self.0.lock().books.in_flight
    }

    /// The most attempts that were in flight at once.
    pub fn max_in_flight(&self) -> usize {
        self.0.lock().books.max_in_flight
    }

    /// Requests that nothing in the script takes: each failed, and its caller may have kept that to itself.
    pub fn unmatched(&self) -> Vec<String> {
        self.0.lock().books.unmatched.clone()
    }

    async fn exchange(self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, Error> {
        let (head, body) = request.into_parts();
        let body = collected(body).await?;
        let request = Request::from_parts(head, ());
        let facts = RequestFacts::read(request.method(), request.uri(), request.headers(), Some(&body));
        let (mut in_flight, chosen) = self.begin(&request, &facts, &body);
        let (place, choice) = match chosen {
            Ok(chosen) => chosen,
            Err(why) => {
                in_flight.answered();
                return Err(self.unknown(&request, why));
            }
        };
        let shape = Shape::of(request.uri().path(), &facts, &body, in_flight.attempt);
        let played = match choice {
            Choice::Scripted(answer) => {
                in_flight.place = Some(place);
                scripted(&answer, &shape)
            }
            Choice::OverCapacity(after) => limited("capacity", after, &shape),
            Choice::OverRate(after) => limited("rate", Some(after), &shape),
        };
        self.0.lock().books.answered(
            in_flight.attempt,
            played.answer,
            played.head.as_ref().map(|h| h.status.as_u16()),
        );
        tokio::time::sleep(played.after).await;
        let Some(head) = played.head else {
            in_flight.answered();
            return Err(Error::new(
                ErrorKind::Connect,
                "cannot connect: the fake target refuses the connection",
            ));
        };
        let body = Playback::new(played.steps, head.length, in_flight);
        let mut response = Response::new(ResponseBody::new(body));
        (*response.status_mut(), *response.headers_mut()) = (head.status, head.headers);
        Ok(response)
    }

    fn begin(
        &self,
        request: &Request<()>,
        facts: &RequestFacts,
        body: &Bytes,
    ) -> (InFlight, Result<(Place, Choice), &'static str>) {
        let mut state = self.0.lock();
        let attempt = state.books.begin(request, facts, body);
        let chosen = state.routes.choose(request.uri(), facts, body, Instant::now());
        let runtime = Handle::try_current().ok();
        (InFlight { state: self.0.clone(), attempt, place: None, answered: false, runtime }, chosen)
    }

    fn unknown(&self, request: &Request<()>, why: &str) -> Error {
        let uri = request.uri();
        let place =
            format!("{} {}{}", request.method(), uri.authority().map_or("", |a| a.as_str()), uri.path());
        let said = format!("{place}: {why}");
        self.0.lock().books.unmatched.push(said.clone());
        Error::new(ErrorKind::Request, format!("the fake target does not answer {said}"))
    }
}

impl std::fmt::Debug for FakeTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.lock();
        f.debug_struct("FakeTarget")
            .field("attempts", &state.books.attempts().len())
            .field("in_flight", &state.books.in_flight)
            .finish_non_exhaustive()
    }
}

async fn collected(mut body: RequestBody) -> Result<Bytes, Error> {
    if let Some(bytes) = body.bytes() {
        return Ok(bytes.clone());
    }
    let mut all = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(chunk) = frame?.into_data() {
            all.extend_from_slice(&chunk);
        }
    }
    Ok(all.into())
}

/// Returns the scripted answer in the shape of the request.
fn scripted(answer: &Answer, shape: &Shape) -> Played {
    match answer {
        Answer::Reply(reply) => wire::reply(reply, shape),
        Answer::Status(status) => wire::status(status, shape),
        Answer::Overloaded(failure) => Played {
            after: failure.after,
            ..wire::failure("overloaded", shape.no_room(), failure.retry_after, shape)
        },
        Answer::Refuse(refusal) => {
            Played { answer: "refuse", after: refusal.after, head: None, steps: VecDeque::new() }
        }
    }
}

/// Returns the refusal of a limit of the script.
fn limited(answer: &'static str, after: Option<Duration>, shape: &Shape) -> Played {
    wire::failure(answer, StatusCode::TOO_MANY_REQUESTS, after, shape)
}
