//! The one family of errors: kind, retryable, status, retry_after, target. Bindings map the kind, never the text.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

pub use tidegate_policy::{ErrorKind, Reason};

use tidegate_policy::outcome::{ExchangeFailure, FailureCause};

use crate::config::ConfigError;
use crate::schedule::Why;

/// A failure that the gate itself hands up.
///
/// A provider's own error response is not one of these: it passes as the response it is, with `x-should-retry: false` added.
/// Holds neither credentials nor prompts, in any representation.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    target: Option<Arc<str>>,
    retry_after: Option<Duration>,
    queue_position: Option<usize>,
    call: Option<u64>,
    why: Option<Why>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    local: bool,
    refused: bool,
    replica: Option<Arc<str>>,
    extensions: http::Extensions,
}

impl Error {
    /// An error of this kind; the message says what to do about it.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            target: None,
            retry_after: None,
            queue_position: None,
            call: None,
            why: None,
            source: None,
            local: false,
            refused: false,
            replica: None,
            extensions: http::Extensions::new(),
        }))
    }

    /// A configuration error.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    /// Names the target or tool that it happened at.
    pub fn at(mut self, target: &Arc<str>) -> Self {
        self.0.target = Some(target.clone());
        self
    }

    /// Says when to come back.
    pub fn retry_after(mut self, after: Option<Duration>) -> Self {
        self.0.retry_after = after;
        self
    }

    /// Says what the last attempt failed with.
    pub(crate) fn after(mut self, class: &str) -> Self {
        self.0.message.push_str(&format!("; its last attempt failed: {class}"));
        self
    }

    /// Says why a pool's replicas may be others than those that were tried.
    pub(crate) fn not_found(mut self, problem: &str) -> Self {
        self.0.message.push_str(&format!("; which replicas there are is not known: {problem}"));
        self
    }

    /// Says which target refused the call first, and why it came to this one.
    pub(crate) fn refused_first(mut self, target: &str, reason: Reason) -> Self {
        self.0.message.push_str(&format!("; it came here because {target} refused it ({})", reason.as_str()));
        self
    }

    /// Says why the fallback target did not take it.
    pub(crate) fn no_fallback(mut self, target: &str, why: &str) -> Self {
        self.0.message.push_str(&format!("; the fallback {target} cannot take it: {why}"));
        self
    }

    /// Says that what came before it was an answer cut short.
    pub(crate) fn cut_short(mut self, why: &str) -> Self {
        self.0.kind = ErrorKind::Truncated;
        self.0.message.insert_str(0, why);
        self
    }

    /// Keeps what it comes from, for whoever wants it back: `source()` returns it. Its text is no part of this error's.
    pub fn because(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Says that it happened on this side, as where a caller's own transport has no connection free: it tells nothing of the target.
    pub fn local(mut self) -> Self {
        self.0.local = true;
        self
    }

    /// Says of a connection that could not be made that the host itself answered so (refused, or reset): nobody listens there. Without it the host may be out of reach, or
    /// its name or certificate wrong, which says less.
    pub fn nobody_listens(mut self) -> Self {
        self.0.refused = true;
        self
    }

    /// See [`Error::nobody_listens`].
    pub fn is_nobody(&self) -> bool {
        self.0.refused && self.0.kind == ErrorKind::Connect
    }

    /// Says which replica of a pool it happened at.
    pub(crate) fn at_replica(mut self, url: &Arc<str>) -> Self {
        self.0.replica = Some(url.clone());
        self
    }

    /// The replica that it happened at, by its base URL, where its target is a pool and a replica had the call.
    pub fn replica(&self) -> Option<&str> {
        self.0.replica.as_deref()
    }

    /// Whether the target has no part in it: nothing is to be concluded of the target, not even that it is up.
    pub fn is_local(&self) -> bool {
        self.0.local || self.0.kind == ErrorKind::Request
    }

    /// The typed values that layers attach to the error, as to the extensions of a response.
    pub(crate) fn extensions(&self) -> &http::Extensions {
        &self.0.extensions
    }

    /// See [`Error::extensions`].
    pub(crate) fn extensions_mut(&mut self) -> &mut http::Extensions {
        &mut self.0.extensions
    }

    /// Says how many calls stood ahead in the tenant's queue.
    pub fn queue_position(mut self, position: usize) -> Self {
        self.0.queue_position = Some(position);
        self
    }

    /// Says what stood in the call's way when it was refused.
    pub fn explained(mut self, why: Option<Why>) -> Self {
        self.0.why = why;
        self
    }

    /// Says which call it ended.
    pub(crate) fn of_call(mut self, id: u64) -> Self {
        self.0.call = Some(id);
        self
    }

    /// What stood in the call's way when it was refused, where that is known.
    pub fn why(&self) -> Option<&Why> {
        self.0.why.as_ref()
    }

    /// The number of the call that it ended, as in the log of calls.
    pub fn call(&self) -> Option<u64> {
        self.0.call
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Why admission said no, where it did.
    pub fn reason(&self) -> Option<Reason> {
        self.0.kind.reason()
    }

    /// The target or tool it happened at.
    pub fn target(&self) -> Option<&str> {
        self.0.target.as_deref()
    }

    /// When it is worth coming back.
    pub fn come_back(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// How many calls stood ahead of this one.
    pub fn position(&self) -> Option<usize> {
        self.0.queue_position
    }

    /// What went wrong and what to do about it.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns `true` if the same call may succeed later, unchanged.
    pub fn retryable(&self) -> bool {
        self.0.kind.is_retryable()
    }

    /// Returns `true` if the request never reached the upstream, so that sending it again is safe.
    pub fn never_sent(&self) -> bool {
        self.0.kind.never_sent()
    }

    /// The HTTP status that says the same.
    pub fn status(&self) -> StatusCode {
        match self.0.kind {
            ErrorKind::Config | ErrorKind::Unknown | ErrorKind::Request => StatusCode::BAD_REQUEST,
            ErrorKind::Refused(
                Reason::NoSlot
                | Reason::QueueFull
                | Reason::CoolDown
                | Reason::NoBudget
                | Reason::PredictedWait
                | Reason::Shed,
            ) => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Refused(Reason::Outage | Reason::Draining) => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Refused(Reason::Deadlock) => StatusCode::CONFLICT,
            ErrorKind::Refused(Reason::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Refused(_)
            | ErrorKind::Deadline
            | ErrorKind::FirstTokenTimeout
            | ErrorKind::IdleTimeout
            | ErrorKind::ConnectTimeout => StatusCode::GATEWAY_TIMEOUT,
            ErrorKind::ReaderStalled => StatusCode::REQUEST_TIMEOUT,
            ErrorKind::Connect | ErrorKind::Transport | ErrorKind::Truncated => StatusCode::BAD_GATEWAY,
        }
    }
}

impl From<&Error> for ExchangeFailure {
    /// Classifies the error of an exchange by its kind.
    fn from(error: &Error) -> Self {
        let cause = match error {
            error if error.is_local() => FailureCause::Local,
            error if error.is_nobody() => FailureCause::ConnectRefused,
            _ => FailureCause::Upstream,
        };
        Self { kind: error.kind(), cause, retry_after: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0.target, &self.0.replica) {
            (Some(target), Some(replica)) => write!(f, "{target} at {replica}: ")?,
            (Some(target), None) => write!(f, "{target}: ")?,
            (None, _) => {}
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("target", &self.0.target)
            .field("replica", &self.0.replica)
            .field("retry_after", &self.0.retry_after)
            .field("queue_position", &self.0.queue_position)
            .finish()
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::config(error.to_string())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let source: &(dyn std::error::Error + 'static) = self.0.source.as_deref()?;
        Some(source)
    }
}
