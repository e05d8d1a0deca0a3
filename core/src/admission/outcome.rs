//! How an attempt ended, as its target's limit is told.
//!
//! What says nothing of how busy the upstream is, is told as such: a limit that learned from a mistyped URL would be wrong for everybody.

use http::Response;

use super::Permit;
use crate::adaptive::Ended;
use crate::body::ResponseBody;
use crate::call::Call;
use crate::clock;
use crate::error::{Error, ErrorKind};
use crate::wire::RateHeaders;
use crate::wire::classify::{Class, Verdict};

/// By its head, or for want of one; `None`: its body will tell.
pub(super) fn of_head(permit: &Permit, result: &Result<Response<ResponseBody>, Error>) -> Option<Ended> {
    match result {
        Ok(response) => {
            let verdict = response.extensions().get::<Verdict>()?;
            Some(match verdict.class {
                Class::RateLimited => Ended::Limited { by_rate: is_by_rate(permit, response, verdict) },
                Class::Overloaded => Ended::Overloaded,
                Class::Timeout => Ended::TimedOut,
                _ => Ended::Failed,
            })
        }
        Err(error) => Some(of_error(error, false)),
    }
}

/// Whether it was turned away for a rate: the provider says when to come back, or that nothing is left, or by our own books nothing is. A limit on how many
/// run at once knows of no time.
fn is_by_rate(permit: &Permit, response: &Response<ResponseBody>, verdict: &Verdict) -> bool {
    verdict.delay.is_some()
        || RateHeaders::read(response.headers(), clock::wall()).shows_nothing_left()
        || permit.is_spent()
}

/// By an error. Silence counts against the upstream until the first token has come; what breaks off, whenever it does, does not.
pub(super) fn of_error(error: &Error, has_token: bool) -> Ended {
    match error.kind() {
        ErrorKind::FirstTokenTimeout | ErrorKind::IdleTimeout if !has_token => Ended::TimedOut,
        _ => Ended::Failed,
    }
}

/// By what was seen of its body until now. `over`: it has ended by itself. `waits`: else it was the upstream that kept us waiting, and not the reader.
pub(super) fn of_body(call: &Call, over: bool, waits: bool, has_token: bool) -> Ended {
    let Some((attempt, usage)) = call.taken() else { return Ended::Cancelled };
    if attempt.complete {
        let produced = call.progress().tokens();
        return Ended::Completed { output: usage.map_or(produced, |usage| usage.output.max(produced)) };
    }
    let is_overdue = call.is_enforced() && call.deadline() <= clock::now();
    if attempt.failed || over {
        Ended::Failed
    } else if is_overdue && waits && !has_token {
        Ended::TimedOut
    } else {
        Ended::Cancelled
    }
}
