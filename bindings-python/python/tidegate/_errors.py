"""The exceptions of the package. Programs read the attributes; the message is for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    from tidegate._explain import Rule, Why

Reason = Literal[
    "no_slot",
    "queue_full",
    "wait_budget",
    "client_timeout",
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
"""Why admission rejected a call."""


class Error(Exception):
    """Base class of the errors that the gate raises.

    An error response of a provider is not an instance of this class: the SDK or the httpx client
    returns it unchanged.

    Attributes:
        kind: Stable name of the failure, for example `refused`, `deadline` or `connect`.
        reason: Why admission rejected the call, or None unless `kind` is `refused`. `no_slot`: no
            slot is free and the target does not queue. `queue_full`: the queue is full.
            `wait_budget`: the call waited as long as its wait limit allows. `client_timeout`: the
            call waited as long as the client's own timeout allows. `deadline`: the deadline has
            passed. `cool_down` or `outage`: the target admits no calls at the moment,
            because the provider asked callers to wait, or because of repeated failures.
            `draining`: `Gate.drain` was called. `deadlock`: the wait for a tool could never end,
            because every holder of the tool is this task or waits for it. `no_budget`: a rate limit,
            a budget or the KV memory is used up or reserved and the target does not queue.
            `too_large`: the call needs more tokens than the limits can ever allow.
            `predicted_wait`: the expected wait is longer than the call may wait. `shed`: the call was
            removed from the queue in favour of a more urgent one.
        target: Name of the target or tool, or None if it is not known.
        status: HTTP status that corresponds to the failure, 400 to 599.
        retry_after: Seconds after which a retry may succeed, or None if that is not known.
        queue_position: Number of calls of the same tenant that were ahead in the queue, counted up
            to 1,000 if the call had waited. None if the number is not known.
        retryable: Whether the same call may succeed later without a change.
        call: Number of the call, as in `Gate.calls`, or None if the error belongs to no call.
        why: The rule that blocked a rejected call, or None if it is not known.

    Example:
        ```python
        try:
            async with gate.tool("db"):
                ...
        except tidegate.Refused as error:
            print(error.reason, error.retry_after)
        ```

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
        """Creates an error with the given message and attributes. See the class."""
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
        """Returns the parts from which pickle rebuilds the error with all its attributes."""
        return _restore, (type(self), self.args, self.__dict__)


class ConfigError(Error, ValueError):
    """Raised if the configuration has an unknown key or an invalid or impossible value.

    The message names each wrong key and the nearest valid one.
    """


class UnknownNameError(Error, LookupError):
    """Raised if no tool or target with the given name is configured."""


class Refused(Error):  # noqa: N818 - the name that metrics use too
    """Raised if the gate rejects a call instead of sending it.

    `reason` is the cause, and `retry_after` the time in seconds after which a retry may succeed.
    See `Error` for all attributes.
    """


class Deadline(Error, TimeoutError):  # noqa: N818
    """Raised if the deadline of a call passes after the call was admitted."""


class Timeout(Error, TimeoutError):  # noqa: N818
    """Raised if connecting, the first token or the next chunk exceeds its timeout."""


class ConnectionFailed(Error, ConnectionError):  # noqa: N818
    """Raised if the connection to the upstream cannot be opened, or breaks."""


class Truncated(ConnectionFailed):
    """Raised if a response ends before its declared length or the provider's final event."""


class RequestError(Error, ValueError):
    """Raised if the request itself cannot be sent, for example because its URL is malformed."""


class SweepError(Error, RuntimeError):
    """Raised if the first call of a sweep fails. The message names the cause and what to change."""


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
    """Returns the exception for an error of the Rust core.

    Only the native module calls this function. `kind` selects the class. `retry_after` and the
    times in `why` are in seconds. `why` has the arguments of `Why` in order.
    """
    if why is not None:
        from tidegate._explain import Why  # noqa: PLC0415 - imports dataclasses, which is slow
    return _CLASSES.get(kind, Error)(
        message,
        kind=kind,
        # The shared test vectors compare the core's reasons with `Reason`.
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
    """Rebuilds an error from the parts that `Error.__reduce__` returned."""
    error = cls(args[0], kind="")
    error.__dict__.update(state)
    return error
