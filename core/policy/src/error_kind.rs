//! The kinds of failures of the gate itself.

use crate::Reason;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The configuration is malformed or impossible.
    Config,
    /// A tool or target of that name is not configured.
    Unknown,
    /// Admission said no.
    Refused(Reason),
    /// The whole call's deadline passed after admission.
    Deadline,
    /// No first token, or no response head, within the target's `first_token` limit or the client's read timeout.
    FirstTokenTimeout,
    /// Silence between chunks for longer than the idle limit.
    IdleTimeout,
    /// The reader left a chunk unasked-for past its limit; the slot was taken back.
    ReaderStalled,
    /// No connection could be made; nothing was sent.
    Connect,
    /// A connection took longer than the connect limit; nothing was sent.
    ConnectTimeout,
    /// The exchange broke after the request, or part of it, was sent.
    Transport,
    /// The response ended without the provider's terminal event, or shorter than it said.
    Truncated,
    /// The request cannot be sent as it is (malformed URL, unsupported scheme).
    Request,
}

impl ErrorKind {
    /// Every kind, refusals by each reason.
    pub const ALL: [ErrorKind; 23] = [
        ErrorKind::Config,
        ErrorKind::Unknown,
        ErrorKind::Refused(Reason::NoSlot),
        ErrorKind::Refused(Reason::QueueFull),
        ErrorKind::Refused(Reason::WaitBudget),
        ErrorKind::Refused(Reason::Deadline),
        ErrorKind::Refused(Reason::CoolDown),
        ErrorKind::Refused(Reason::Outage),
        ErrorKind::Refused(Reason::Draining),
        ErrorKind::Refused(Reason::Deadlock),
        ErrorKind::Refused(Reason::NoBudget),
        ErrorKind::Refused(Reason::TooLarge),
        ErrorKind::Refused(Reason::PredictedWait),
        ErrorKind::Refused(Reason::Shed),
        ErrorKind::Deadline,
        ErrorKind::FirstTokenTimeout,
        ErrorKind::IdleTimeout,
        ErrorKind::ReaderStalled,
        ErrorKind::Connect,
        ErrorKind::ConnectTimeout,
        ErrorKind::Transport,
        ErrorKind::Truncated,
        ErrorKind::Request,
    ];

    /// Why admission said no, where it did.
    pub fn reason(self) -> Option<Reason> {
        match self {
            ErrorKind::Refused(reason) => Some(reason),
            _ => None,
        }
    }

    /// Returns `true` if the same call may succeed later, unchanged.
    pub fn is_retryable(self) -> bool {
        !matches!(
            self,
            ErrorKind::Config
                | ErrorKind::Unknown
                | ErrorKind::Request
                | ErrorKind::Refused(Reason::Deadlock | Reason::Draining | Reason::TooLarge)
        )
    }

    /// Returns `true` if the request never reached the upstream, so that sending it again is safe.
    pub fn never_sent(self) -> bool {
        matches!(
            self,
            ErrorKind::Refused(_) | ErrorKind::Connect | ErrorKind::ConnectTimeout | ErrorKind::Request
        )
    }

    /// The stable name, as the bindings and metrics see it.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Config => "config",
            ErrorKind::Unknown => "unknown",
            ErrorKind::Refused(_) => "refused",
            ErrorKind::Deadline => "deadline",
            ErrorKind::FirstTokenTimeout => "first_token_timeout",
            ErrorKind::IdleTimeout => "idle_timeout",
            ErrorKind::ReaderStalled => "reader_stalled",
            ErrorKind::Connect => "connect",
            ErrorKind::ConnectTimeout => "connect_timeout",
            ErrorKind::Transport => "transport",
            ErrorKind::Truncated => "truncated",
            ErrorKind::Request => "request",
        }
    }
}
