//! What a call, and the answer to it, say to the limit.

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

/// Bytes of a request that are taken for a token: what classes of prompts are told apart by is a
/// factor of two.
const BYTES_PER_TOKEN: u64 = 4;

/// Reads requests and answers for the limit. Each method has HTTP's own meaning by default
/// ([`HttpJudge`]): override what you know better.
///
/// All are called on the way of a call, and must not block.
pub trait Judge: Send + Sync + 'static {
    /// What kind of call a request makes: calls are held against their like. Asked once, before it
    /// waits.
    ///
    /// *Default*: the [`CallKind`] in the request's extensions; else one that streams, with a token of prompt for each four bytes of a body whose length
    /// is known.
    fn kind<B: Body>(&self, request: &Request<B>) -> CallKind {
        let known = request.extensions().get::<CallKind>().copied();
        let bytes = || request.body().size_hint().exact().unwrap_or(0);
        known.unwrap_or_else(|| CallKind { input: bytes() / BYTES_PER_TOKEN, output: 0, streams: true })
    }

    /// What the head of an answer says.
    ///
    /// *Default*: by status and headers, as [the module](crate::limit) tells.
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

    /// Whether data of a stream holds its first token. Asked frame by frame until it does; a frame
    /// may hold any part of the stream.
    ///
    /// *Default*: it does, if it holds anything.
    fn is_first_token<D: Buf>(&self, data: &D) -> bool {
        data.has_remaining()
    }

    /// What an error says that came in place of an answer. (A body that breaks off says nothing.)
    ///
    /// *Default*: [`Ended::TimedOut`] for the timeouts of tower, tokio, reqwest and Tidegate, but
    /// for those of connecting; [`Ended::Failed`] for all others, which says nothing of how busy
    /// the upstream is.
    fn failed(&self, error: &(dyn StdError + 'static)) -> Ended {
        let mut causes =
            std::iter::successors(Some(error), |error: &&(dyn StdError + 'static)| (*error).source());
        // The outermost that knows: what a timeout was of is not told by what it comes from.
        if causes.find_map(is_timeout).unwrap_or(false) { Ended::TimedOut } else { Ended::Failed }
    }
}

/// What the head of an answer says. Of a call that was of a [`CallKind`] that does not stream, [`Head::Streams`] and [`Head::Whole`] are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The answer streams: its first token is to come in its body.
    Streams,
    /// The answer is one piece: its first token is its end.
    Whole,
    /// How the call ended, whatever its body says. The slot is held until that has ended too.
    Ended(Ended),
}

/// Judges by what HTTP itself says: status, `Retry-After`, rate headers, `content-type`. It reads
/// no body.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpJudge;

impl Judge for HttpJudge {}

fn is_event_stream(headers: &HeaderMap) -> bool {
    const EVENTS: &[u8] = b"text/event-stream";
    let kind = headers.get(CONTENT_TYPE).map_or(&[][..], |value| value.as_bytes());
    kind.get(..EVENTS.len()).is_some_and(|start| start.eq_ignore_ascii_case(EVENTS))
}

/// `None`: it is of no kind that tells.
fn is_timeout(error: &(dyn StdError + 'static)) -> Option<bool> {
    if error.is::<tower::timeout::error::Elapsed>() || error.is::<tokio::time::error::Elapsed>() {
        return Some(true);
    }
    if let Some(error) = error.downcast_ref::<Error>() {
        return Some(matches!(error.kind(), ErrorKind::FirstTokenTimeout | ErrorKind::IdleTimeout));
    }
    if let Some(error) = error.downcast_ref::<reqwest::Error>() {
        return Some(error.is_timeout() && !error.is_connect());
    }
    // What it wraps is not among its sources.
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
    fn reads_heads() {
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
    fn tells_calls_apart_by_their_length_or_as_they_are_told() {
        let request = Request::new(Full::new(Bytes::from(vec![b' '; 4000])));
        assert_eq!(HttpJudge.kind(&request), CallKind { input: 1000, output: 0, streams: true });
        let told = CallKind { input: 7, output: 9, streams: false };
        let mut request = Request::new(Empty::<Bytes>::new());
        request.extensions_mut().insert(told);
        assert_eq!(HttpJudge.kind(&request), told);
    }

    #[tokio::test(start_paused = true)]
    async fn only_waiting_in_vain_counts_as_a_timeout() {
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
