//! The kinds of errors that the gate itself returns, as opposed to error responses of a provider.

use crate::{Reason, labels::labelled};

labelled! {
    /// The kind of an error that the gate returns for a call.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ErrorKind {
        /// The configuration is malformed or contradicts itself.
        Config = "config",
        /// No tool or target of the requested name is configured.
        Unknown = "unknown",
        /// The call, or a retry of it, was not admitted. Nothing was sent in this attempt.
        Refused(Reason) = "refused",
        /// The deadline of the call passed after the call was admitted.
        Deadline = "deadline",
        /// No first token, or no response head, arrived within the target's `first_token` limit or
        /// the client's read timeout.
        FirstTokenTimeout = "first_token_timeout",
        /// No chunk of the response arrived for longer than the idle limit.
        IdleTimeout = "idle_timeout",
        /// The caller did not read the response for longer than the configured limit, and the slot
        /// of the call was released.
        ReaderStalled = "reader_stalled",
        /// No connection could be established. Nothing was sent in this attempt.
        Connect = "connect",
        /// No connection was established within the connect limit. Nothing was sent in this
        /// attempt.
        ConnectTimeout = "connect_timeout",
        /// The connection failed after the request, or a part of it, was sent.
        Transport = "transport",
        /// The response ended before its announced length, or without the terminal event of the
        /// provider's API.
        Truncated = "truncated",
        /// The request cannot be sent, for example because its URL is malformed or its scheme is
        /// not supported.
        Request = "request",
    }
}

impl ErrorKind {
    /// Returns all kinds. [`ErrorKind::Refused`] is returned once for each [`Reason`].
    pub fn all() -> impl Iterator<Item = Self> {
        use ErrorKind::*;

        let others = [
            Config,
            Unknown,
            Deadline,
            FirstTokenTimeout,
            IdleTimeout,
            ReaderStalled,
            Connect,
            ConnectTimeout,
            Transport,
            Truncated,
            Request,
        ];
        Reason::ALL.map(Refused).into_iter().chain(others)
    }

    /// Returns why the call was not admitted. `None` if the error is not [`ErrorKind::Refused`].
    pub fn reason(self) -> Option<Reason> {
        if let Self::Refused(reason) = self { Some(reason) } else { None }
    }

    /// Returns `true` if the same call may succeed later without a change.
    pub fn is_retryable(self) -> bool {
        !matches!(
            self,
            Self::Config
                | Self::Unknown
                | Self::Request
                | Self::Refused(Reason::Deadlock | Reason::Draining | Reason::TooLarge)
        )
    }

    /// Returns `true` if nothing was sent to the upstream in the attempt that ended with this
    /// error. Earlier attempts of the call may have been sent.
    pub fn never_sent(self) -> bool {
        matches!(self, Self::Refused(_) | Self::Connect | Self::ConnectTimeout | Self::Request)
    }
}
