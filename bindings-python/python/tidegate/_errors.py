"""One small family of errors. What went wrong is in the attributes; the text is for people."""

from __future__ import annotations

from typing import Literal, cast

from tidegate._explain import Rule, Why

Reason = Literal[
    "no_slot",
    "queue_full",
    "wait_budget",
    "deadline",
    "cool_down",
    "outage",
    "draining",
    "deadlock",
    "no_budget",
    "too_large",
    "predicted_wait",
    "shed",
]
"""Why admission said no."""


class Error(Exception):
    """What the gate itself hands up. A provider's own error response is not one of these.

    Attributes:
        kind: the stable name of what went wrong (`refused`, `deadline`, `connect`, ...).
        reason: why admission said no (`no_slot`, `queue_full`, `wait_budget`, `deadline`, `cool_down`, `outage`,
            `draining`, `deadlock`, `no_budget`: a rate of the provider is used up, `too_large`: no waiting would help,
            `predicted_wait`: it would wait too long, `shed`: it made room for a more urgent one); None unless `kind`
            is `refused`.
        target: the target or tool it happened at, where one is known.
        status: the HTTP status that says the same.
        retry_after: seconds until it is worth coming back; None where nobody knows.
        queue_position: how many calls stood ahead of this one; None where it did not queue.
        retryable: whether the same call may succeed later, unchanged.
        call: the number of the call that it ended, as in `gate.calls()`; None where there was none.
        why: what stood in a refused call's way (`Why`: `rule`, `text`, `since`, `waited`, `expected`, `ahead`); None
            where nothing is known of that.

    """

    kind: str
    reason: Reason | None
    target: str | None
    status: int
    retry_after: float | None
    queue_position: int | None
    retryable: bool
    call: int | None
    why: Why | None

    def __init__(  # noqa: PLR0913 - one argument an attribute
        self,
        message: str,
        *,
        kind: str,
        reason: Reason | None = None,
        target: str | None = None,
        status: int = 500,
        retry_after: float | None = None,
        queue_position: int | None = None,
        retryable: bool = False,
        call: int | None = None,
        why: Why | None = None,
    ) -> None:
        """Keep every part as an attribute."""
        super().__init__(message)
        self.kind = kind
        self.reason = reason
        self.target = target
        self.status = status
        self.retry_after = retry_after
        self.queue_position = queue_position
        self.retryable = retryable
        self.call = call
        self.why = why

    def __reduce__(self) -> tuple[object, ...]:
        """Travel between processes whole."""
        return _restore, (type(self), self.args, self.__dict__)


class ConfigError(Error, ValueError):
    """The configuration is malformed or impossible; the message names the key and the nearest valid one."""


class UnknownNameError(Error, LookupError):
    """A tool or target of that name is not configured."""


class Refused(Error):  # noqa: N818 - the word users and metrics have for it
    """Admission said no: see `reason`, `queue_position` and `retry_after`."""


class Deadline(Error, TimeoutError):  # noqa: N818
    """The whole call's deadline passed after it was admitted."""


class Timeout(Error, TimeoutError):  # noqa: N818
    """No first token, or silence between chunks, for longer than allowed; or no connection in time."""


class ConnectionFailed(Error, ConnectionError):  # noqa: N818
    """No connection could be made, or it broke."""


class Truncated(ConnectionFailed):
    """The response ended without the provider's terminal event, or shorter than it said."""


class RequestError(Error, ValueError):
    """The request cannot be sent as it is: a malformed URL, an unsupported scheme."""


class SweepError(Error, RuntimeError):
    """A sweep's first call was not answered as such a call is; the message says what to do."""


_CLASSES: dict[str, type[Error]] = {
    "config": ConfigError,
    "unknown": UnknownNameError,
    "refused": Refused,
    "deadline": Deadline,
    "first_token_timeout": Timeout,
    "idle_timeout": Timeout,
    "connect_timeout": Timeout,
    "reader_stalled": ConnectionFailed,
    "connect": ConnectionFailed,
    "transport": ConnectionFailed,
    "truncated": Truncated,
    "request": RequestError,
}


def from_native(  # noqa: PLR0913, PLR0917 - one argument a field, called by the native half only
    kind: str,
    message: str,
    reason: str | None,
    target: str | None,
    status: int,
    retry_after: float | None,
    queue_position: int | None,
    retryable: bool,
    call: int | None,
    why: tuple[Rule, str, float, float, float | None, int] | None,
) -> Error:
    """Make the exception of that kind."""
    return _CLASSES.get(kind, Error)(
        message,
        kind=kind,
        # The core's own words, which the vectors hold against these.
        reason=cast("Reason | None", reason),
        target=target,
        status=status,
        retry_after=retry_after,
        queue_position=queue_position,
        retryable=retryable,
        call=call,
        why=None if why is None else Why(*why),
    )


def _restore(cls: type[Error], args: tuple[str], state: dict[str, object]) -> Error:
    error = cls(args[0], kind="")
    error.__dict__.update(state)
    return error
