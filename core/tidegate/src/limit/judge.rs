//! Interprets requests, responses and errors for the adaptive limit: the trait [`Judge`] and its
//! default for HTTP.

use std::error::Error as StdError;
use std::io;

use bytes::Buf;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{Request, Response};
use http_body::Body;

use crate::adaptive::{CallKind, Ended};
use crate::clock;
use crate::error::{Error, ErrorKind};
use tidegate_protocol::{Class, RateHeaders, classify};

/// Assumed number of body bytes per prompt token. An estimate suffices, because calls are only
/// compared with calls whose prompt has up to twice the size.
const BYTES_PER_TOKEN: u64 = 4;

/// Interprets requests, responses and errors for the limit.
///
/// The default methods use the meaning of HTTP statuses and headers ([`HttpJudge`]). Override a
/// method if more is known about the upstream. All methods are called while a call is processed,
/// and must not block.
pub trait Judge: Send + Sync + 'static {
    /// Returns the kind of call that a request makes: its size, and whether it streams. The limit
    /// compares latencies within a kind only. Called once, before the call waits.
    ///
    /// *Default*: the [`CallKind`] in the request's extensions. Otherwise a streaming call, whose
    /// prompt has one token for each four bytes of a body of known length.
    fn kind<B: Body>(&self, request: &Request<B>) -> CallKind {
        let known = request.extensions().get::<CallKind>().copied();
        let bytes = || request.body().size_hint().exact().unwrap_or(0);
        known.unwrap_or_else(|| CallKind { input: bytes() / BYTES_PER_TOKEN, output: 0, streams: true })
    }

    /// Classifies a response by its head: whether its body is a stream, or how the call has ended
    /// already.
    ///
    /// *Default*: by status and headers, as described in [the module](crate::limit).
    fn head<B>(&self, response: &Response<B>) -> Head {
        let (status, headers) = (response.status(), response.headers());
        if !status.is_client_error() && !status.is_server_error() {
            return if is_event_stream(headers) { Head::Streams } else { Head::Whole };
        }
        let verdict = classify(status, headers, b"", clock::wall());
        Head::Ended(match verdict.class {
            Class::RateLimited => {
                let shows_a_rate = || RateHeaders::read(headers, clock::wall()).has_exhausted();
                Ended::Limited { by_rate: verdict.delay.is_some() || shows_a_rate() }
            }
            Class::Overloaded => Ended::Overloaded,
            _ => Ended::Failed,
        })
    }

    /// Returns `true` if `data` contains the first token of a stream. Called for each frame of the
    /// body until it returns `true`. A frame may begin and end anywhere in the stream.
    ///
    /// *Default*: `true` if the data is not empty.
    fn is_first_token<D: Buf>(&self, data: &D) -> bool {
        data.has_remaining()
    }

    /// Classifies an error that was returned instead of a response. Not called for bodies that
    /// break off.
    ///
    /// *Default*: [`Ended::TimedOut`] for timeouts of tower, tokio, Tidegate and, with the feature
    /// `reqwest`, of reqwest, except for connection timeouts. [`Ended::Failed`] for all other
    /// errors, which do not affect the limit.
    fn failed(&self, error: &(dyn StdError + 'static)) -> Ended {
        let mut causes =
            std::iter::successors(Some(error), |error: &&(dyn StdError + 'static)| (*error).source());
        // The outermost recognized error decides: its sources do not show which timeout it was.
        if causes.find_map(is_timeout).unwrap_or(false) { Ended::TimedOut } else { Ended::Failed }
    }
}

/// What the head of a response shows about the rest of its call. [`Head::Streams`] and
/// [`Head::Whole`] are equivalent for calls whose [`CallKind`] does not stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The response is a stream: its first token arrives in the body.
    Streams,
    /// The response arrives in one piece: its first token arrives with the end of the body.
    Whole,
    /// The call has ended in this way, whatever its body contains. The slot is still held until the
    /// body has ended.
    Ended(Ended),
}

/// The default judge: uses the status, `Retry-After`, rate-limit headers and `content-type`. Does
/// not read bodies.
///
/// ```
/// use http::Response;
/// use tidegate::policy::adaptive::Ended;
/// use tidegate::limit::{Head, HttpJudge, Judge};
///
/// let overloaded = Response::builder().status(503).body(())?;
/// assert_eq!(HttpJudge.head(&overloaded), Head::Ended(Ended::Overloaded));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpJudge;

impl Judge for HttpJudge {}

/// Returns `true` if the content type is `text/event-stream`.
fn is_event_stream(headers: &HeaderMap) -> bool {
    const EVENTS: &[u8] = b"text/event-stream";
    let kind = headers.get(CONTENT_TYPE).map_or(&[][..], |value| value.as_bytes());
    kind.get(..EVENTS.len()).is_some_and(|start| start.eq_ignore_ascii_case(EVENTS))
}

/// Returns whether an error is a timeout: `Some(true)` if it is, `Some(false)` if it is another
/// error of a known type, and `None` if its type is not known. A connection timeout does not count
/// as a timeout.
fn is_timeout(error: &(dyn StdError + 'static)) -> Option<bool> {
    if error.is::<tower::timeout::error::Elapsed>() || error.is::<tokio::time::error::Elapsed>() {
        return Some(true);
    }
    if let Some(error) = error.downcast_ref::<Error>() {
        return Some(matches!(error.kind(), ErrorKind::FirstTokenTimeout | ErrorKind::IdleTimeout));
    }
    #[cfg(feature = "reqwest")]
    if let Some(error) = error.downcast_ref::<reqwest::Error>() {
        return Some(error.is_timeout() && !error.is_connect());
    }
    // The error inside an `io::Error` is not one of its sources.
    is_timeout(error.downcast_ref::<io::Error>()?.get_ref()?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http_body_util::{Empty, Full};

    use super::*;
    use crate::error::Reason;

    fn head(status: u16, headers: &[(&'static str, &'static str)]) -> Head {
        let response = headers.iter().fold(Response::builder().status(status), |response, (name, value)| {
            response.header(*name, *value)
        });
        HttpJudge.head(&response.body(()).unwrap())
    }

    #[test]
    fn response_heads_are_judged() {
        let events = ("content-type", "Text/Event-Stream; charset=utf-8");
        assert_eq!(head(200, &[events]), Head::Streams);
        assert_eq!(head(200, &[("content-type", "text/event")]), Head::Whole);
        assert_eq!(head(304, &[]), Head::Whole);
        for (status, headers, ended) in [
            (429, vec![events], Ended::Limited { by_rate: false }),
            (429, vec![("retry-after", "2")], Ended::Limited { by_rate: true }),
            (429, vec![("x-ratelimit-remaining-requests", "0")], Ended::Limited { by_rate: true }),
            (429, vec![("x-ratelimit-remaining-requests", "7")], Ended::Limited { by_rate: false }),
            (503, vec![("retry-after", "2")], Ended::Overloaded),
            (529, vec![], Ended::Overloaded),
            (500, vec![], Ended::Failed),
            (404, vec![], Ended::Failed),
        ] {
            assert_eq!(head(status, &headers), Head::Ended(ended), "{status} {headers:?}");
        }
    }

    #[test]
    fn call_kind_follows_from_the_length_or_the_caller() {
        let request = Request::new(Full::new(Bytes::from(vec![b' '; 4000])));
        assert_eq!(HttpJudge.kind(&request), CallKind { input: 1000, output: 0, streams: true });
        let kind = CallKind { input: 7, output: 9, streams: false };
        let mut request = Request::new(Empty::<Bytes>::new());
        request.extensions_mut().insert(kind);
        assert_eq!(HttpJudge.kind(&request), kind);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_timeout_while_waiting_counts_as_timed_out() {
        let late = tokio::time::timeout(Duration::from_millis(1), std::future::pending::<()>()).await;
        let late = late.unwrap_err();
        assert_eq!(HttpJudge.failed(&io::Error::other(late)), Ended::TimedOut, "whatever it is wrapped in");
        assert_eq!(HttpJudge.failed(&tower::timeout::error::Elapsed::new()), Ended::TimedOut);
        let of = |kind| HttpJudge.failed(&Error::new(kind, ""));
        assert_eq!(of(ErrorKind::FirstTokenTimeout), Ended::TimedOut);
        assert_eq!(of(ErrorKind::ConnectTimeout), Ended::Failed);
        assert_eq!(of(ErrorKind::Refused(Reason::QueueFull)), Ended::Failed);
        assert_eq!(HttpJudge.failed(&std::fmt::Error), Ended::Failed);
    }
}
