//! The error type of the crate.
//!
//! Every failure is one [`Error`] with a [kind](ErrorKind). The bindings map the kind to an
//! exception class, and never parse the message.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

pub use tidegate_policy::{ErrorKind, Reason};

use tidegate_policy::outcome::{ExchangeFailure, FailureCause};

use crate::config::ConfigError;
use crate::placement::ReplicaView;
use crate::schedule::WaitExplanation;

/// A failure that the gate reports.
///
/// A provider's error response is not an `Error`: it is returned as a response, with the header
/// `x-should-retry: false`. Neither `Display` nor `Debug` shows credentials or prompts.
///
/// ```
/// use tidegate::{Error, ErrorKind};
///
/// let error = Error::config("cap must be 1 or more");
/// assert_eq!(error.kind(), ErrorKind::Config);
/// assert_eq!(error.status(), 400);
/// assert!(!error.retryable());
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

/// The contents of an [`Error`], boxed so that results stay small.
#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    target: Option<Arc<str>>,
    retry_after: Option<Duration>,
    queue_position: Option<usize>,
    call: Option<u64>,
    why: Option<WaitExplanation>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    cause: FailureCause,
    replica: Option<Arc<str>>,
    /// `true` if an earlier attempt of the call may have reached the upstream.
    was_sent: bool,
    extensions: http::Extensions,
}

impl Error {
    /// Creates an error of this kind. `message` states what went wrong and what to do about it,
    /// without the name of the target, which [`Error::at`] sets.
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
            cause: FailureCause::Upstream,
            replica: None,
            was_sent: false,
            extensions: http::Extensions::new(),
        }))
    }

    /// Creates an error of the kind [`ErrorKind::Config`]: the configuration is invalid.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    /// Sets the name of the target or tool at which the error occurred, which `Display` prepends to
    /// the message.
    pub fn at(mut self, target: &Arc<str>) -> Self {
        self.0.target = Some(target.clone());
        self
    }

    /// Sets the delay after which the caller may try again. `None` means that it is unknown.
    pub fn with_retry_after(mut self, after: Option<Duration>) -> Self {
        self.0.retry_after = after;
        self
    }

    /// Appends the failure class of the last attempt, for example `overloaded`, to the message.
    pub(crate) fn with_last_failure(self, class: &str) -> Self {
        self.with_note(format_args!("the last attempt failed: {class}"))
    }

    /// Records, if `was_sent` is `true`, that an earlier attempt of the call may have reached the
    /// upstream. [`Error::never_sent`] then returns `false`.
    pub(crate) fn with_earlier_attempt_sent(mut self, was_sent: bool) -> Self {
        self.0.was_sent |= was_sent;
        self
    }

    /// Appends to the message that the gate's list of the pool's replicas is missing or, if
    /// replicas `are_known`, out of date, and the `problem` that caused this.
    pub(crate) fn with_discovery_problem(self, problem: &str, are_known: bool) -> Self {
        let subject = if are_known {
            "the list of the pool's replicas is out of date"
        } else {
            "the replicas of the pool are not known"
        };
        self.with_note(format_args!("{subject}: {problem}"))
    }

    /// Appends to the message why replicas of the pool accept no calls: for each, its URL and the
    /// reason. `is_whole_pool` is `true` if no other replica is in the pool. Names at most 8.
    pub(crate) fn with_replica_problems(self, replicas: &[ReplicaView], is_whole_pool: bool) -> Self {
        let subject =
            if is_whole_pool { "no replica accepts calls" } else { "some replicas accept no calls" };
        self.with_note(format_args!("{subject} ({})", list_replica_problems(replicas)))
    }

    /// Appends to the message how the last call that was sent to the target, a single server,
    /// failed.
    pub(crate) fn with_target_problem(self, problem: &str) -> Self {
        self.with_note(format_args!("the last call that was sent to the target failed ({problem})"))
    }

    /// Appends to the message that `target`, the first target of the fallback chain, had rejected
    /// the call for `reason`.
    pub(crate) fn with_first_rejection(self, target: &str, reason: Reason) -> Self {
        let reason = reason.as_str();
        self.with_note(format_args!("the call was sent here because {target} rejected it ({reason})"))
    }

    /// Appends to the message why the call could not be sent to `target`, the fallback target.
    pub(crate) fn with_fallback_problem(self, target: &str, why: &str) -> Self {
        self.with_note(format_args!("the fallback {target} cannot be used: {why}"))
    }

    fn with_note(mut self, note: fmt::Arguments<'_>) -> Self {
        self.0.message.push_str(&format!("; {note}"));
        self
    }

    /// Changes the kind to [`ErrorKind::Truncated`], because a part of the response had already
    /// arrived, and puts `why` in front of the message.
    pub(crate) fn into_truncated(mut self, why: &str) -> Self {
        self.0.kind = ErrorKind::Truncated;
        self.0.message.insert_str(0, why);
        self
    }

    /// Sets the underlying error, which `source()` returns. The message does not include the text
    /// of the underlying error.
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Marks the error as local: it occurred in this process, so it does not affect the state of
    /// the target. Example: the caller's own transport has no free connection.
    pub fn with_local_cause(mut self) -> Self {
        self.0.cause = FailureCause::Local;
        self
    }

    /// Marks a failed connection as refused or reset by the host, which means that no server
    /// listens at the address. Has an effect only for the kind [`ErrorKind::Connect`].
    ///
    /// Without this mark, the host may also be unreachable, or its name or certificate may be
    /// wrong.
    pub fn with_connect_refused(mut self) -> Self {
        self.0.cause = FailureCause::ConnectRefused;
        self
    }

    /// Returns `true` if the kind is [`ErrorKind::Connect`] and the host refused or reset the
    /// connection ([`Error::with_connect_refused`]).
    pub fn is_connect_refused(&self) -> bool {
        self.0.cause == FailureCause::ConnectRefused && self.0.kind == ErrorKind::Connect
    }

    /// Sets the base URL of the replica at which the error occurred.
    pub(crate) fn at_replica(mut self, url: &Arc<str>) -> Self {
        self.0.replica = Some(url.clone());
        self
    }

    /// Returns the base URL of the replica at which the error occurred. `None` if the target is not
    /// a pool, or if the call had not been sent to a replica.
    pub fn replica(&self) -> Option<&str> {
        self.0.replica.as_deref()
    }

    /// Returns `true` if the error does not affect the state of the target, because it occurred in
    /// this process ([`Error::with_local_cause`]) or because the request was invalid
    /// ([`ErrorKind::Request`]).
    pub fn is_local(&self) -> bool {
        self.0.cause == FailureCause::Local || self.0.kind == ErrorKind::Request
    }

    /// Returns the typed values that the layers of the client attach to the error.
    pub(crate) fn extensions(&self) -> &http::Extensions {
        &self.0.extensions
    }

    /// Returns the typed values that the layers of the client attach to the error, for
    /// modification.
    pub(crate) fn extensions_mut(&mut self) -> &mut http::Extensions {
        &mut self.0.extensions
    }

    /// Sets the number of calls that were ahead in the queue of the same tenant when the call was
    /// rejected.
    pub fn with_queue_position(mut self, position: usize) -> Self {
        self.0.queue_position = Some(position);
        self
    }

    /// Sets the rule that kept the call waiting when it was rejected. `None` means that it is
    /// unknown.
    pub fn with_why(mut self, why: Option<WaitExplanation>) -> Self {
        self.0.why = why;
        self
    }

    /// Sets the number of the call that ended with this error, as in
    /// [`CallRecord`](crate::CallRecord).
    pub(crate) fn with_call(mut self, id: u64) -> Self {
        self.0.call = Some(id);
        self
    }

    /// Returns the rule that kept the call waiting when it was rejected. `None` if the call did not
    /// wait, or if the rule is unknown.
    pub fn why(&self) -> Option<&WaitExplanation> {
        self.0.why.as_ref()
    }

    /// Returns the number of the call that ended with this error, as in the log of calls
    /// ([`Gate::calls`](crate::Gate::calls)). `None` if the error occurred before the call got a
    /// number.
    pub fn call(&self) -> Option<u64> {
        self.0.call
    }

    /// Returns the kind of the error, by which callers should distinguish errors.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the reason for which admission rejected the call. `None` unless the kind is
    /// [`ErrorKind::Refused`].
    pub fn reason(&self) -> Option<Reason> {
        self.0.kind.reason()
    }

    /// Returns the name of the target or tool at which the error occurred. `None` if the error
    /// concerns neither.
    pub fn target(&self) -> Option<&str> {
        self.0.target.as_deref()
    }

    /// Returns the delay after which the caller may try again. `None` if it is unknown.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Returns the number of calls that were ahead in the queue of the same tenant when admission
    /// rejected the call. `None` if the number is not known, or if the call failed for another
    /// reason.
    pub fn queue_position(&self) -> Option<usize> {
        self.0.queue_position
    }

    /// Returns the message: what went wrong and what to do about it. It does not contain the name
    /// of the target or replica, which `Display` adds.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns `true` if the same request may succeed later ([`ErrorKind::is_retryable`]).
    pub fn retryable(&self) -> bool {
        self.0.kind.is_retryable()
    }

    /// Returns `true` if no part of the request reached the upstream in any attempt of the call, so
    /// that the request can be sent again without being executed twice.
    pub fn never_sent(&self) -> bool {
        self.0.kind.never_sent() && !self.0.was_sent
    }

    /// Returns the HTTP status that [`Error::response`] uses for the kind: for example, 429 if a
    /// queue is full, or 504 if a deadline passed.
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

/// Returns the URL and the problem of each of these replicas as text. Names at most 8.
pub(crate) fn list_replica_problems(replicas: &[ReplicaView]) -> String {
    let problem = |replica: &ReplicaView| replica.problem.unwrap_or(replica.state.as_str());
    let named = replicas.iter().take(8).map(|replica| format!("{}: {}", replica.url, problem(replica)));
    let mut named: Vec<String> = named.collect();
    if replicas.len() > named.len() {
        named.push(format!("and {} more", replicas.len() - named.len()));
    }
    named.join("; ")
}

impl From<&Error> for ExchangeFailure {
    /// Creates the description of a failed exchange from its error. The cause depends on
    /// [`Error::is_local`] and [`Error::is_connect_refused`].
    fn from(error: &Error) -> Self {
        let cause = if error.is_local() {
            FailureCause::Local
        } else if error.is_connect_refused() {
            FailureCause::ConnectRefused
        } else {
            FailureCause::Upstream
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
