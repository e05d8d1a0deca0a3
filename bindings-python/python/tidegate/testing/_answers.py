"""The answers of a fake target. All times are in seconds and may be fractions."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Answer:
    """One answer in the script of a fake target.

    Create answers with `ok`, `rate_limited` and the other functions of `tidegate.testing`.

    Attributes:
        kind: Kind of the answer in the JSON script.
        fields: Settings of the answer in the JSON script.

    """

    kind: str
    fields: Mapping[str, Any]

    def times(self, count: int) -> Answer:
        """Returns the same answer, given `count` times instead of once.

        Args:
            count: Number of attempts that get the answer, 1 or more.

        Returns:
            A new answer. This one is not changed.

        Example:
            ```python
            from tidegate.testing import FakeTarget, ok, overloaded

            target = FakeTarget(overloaded().times(3), ok())
            ```

        """
        return dataclasses.replace(self, fields={**self.fields, "times": count})

    def script(self) -> dict[str, Any]:
        """Returns the answer as data for the JSON script, which is the same in every language."""
        return {self.kind: {name: value for name, value in self.fields.items() if value is not None}}


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """A call of a tool in the answer of a model.

    Attributes:
        name: Name of the tool.
        arguments: Arguments of the call by name.

    """

    name: str
    arguments: Mapping[str, Any]


def tool_call(name: str, /, **arguments: Any) -> ToolCall:
    """Returns a call of a tool for the answer of a model.

    Args:
        name: Name of the tool.
        **arguments: Arguments of the call.

    Returns:
        The call, for `ok(tool_calls=[...])`.

    """
    return ToolCall(name, arguments)


def ok(
    text: str | None = None,
    *,
    tool_calls: Sequence[ToolCall] = (),
    after: float = 0.0,
    every: float = 0.0,
) -> Answer:
    """Creates a successful answer in the format of the API that the request uses.

    If the request asks for a stream, the answer is streamed word by word.

    Args:
        text: Text of the answer. Default: `ok`, or nothing if there are tool calls.
        tool_calls: Tools that the model calls after the text. Default: none.
        after: Seconds until the first word. An answer that is not streamed arrives when its stream
            would have ended. Default: 0.
        every: Seconds between two words. Default: 0.

    Returns:
        The answer.

    Example:
        ```python
        from tidegate.testing import FakeTarget, ok, tool_call

        target = FakeTarget(ok(tool_calls=[tool_call("search", query="tides")]), ok("done", after=2))
        ```

    """
    return _reply(text=text, tool_calls=tool_calls, after=after, every=every)


def stream(*chunks: str, after: float = 0.0, every: float = 0.0) -> Answer:
    """Creates a successful answer whose text consists of the given chunks.

    If the request asks for a stream, each chunk is sent by itself. Otherwise, the answer has the
    whole text.

    Args:
        *chunks: Chunks of text.
        after: Seconds until the first chunk. Default: 0.
        every: Seconds between two chunks. Default: 0.

    Returns:
        The answer.

    """
    return _reply(chunks=chunks, after=after, every=every)


def stall(*chunks: str, after: float = 0.0, every: float = 0.0) -> Answer:
    """Creates an answer that sends the chunks, then nothing more, and never ends.

    Without chunks, only the head of the response is sent.

    Args:
        *chunks: Chunks of text.
        after: Seconds until the first chunk. Default: 0.
        every: Seconds between two chunks. Default: 0.

    Returns:
        The answer.

    """
    return _reply(chunks=chunks, after=after, every=every, end="stall")


def truncate(*chunks: str, after: float = 0.0, every: float = 0.0) -> Answer:
    """Creates an answer that ends cleanly after the chunks, but without the final event of the API.

    If the request asks for no stream, the body ends in the middle.

    Args:
        *chunks: Chunks of text.
        after: Seconds until the first chunk. Default: 0.
        every: Seconds between two chunks. Default: 0.

    Returns:
        The answer.

    """
    return _reply(chunks=chunks, after=after, every=every, end="truncate")


def break_off(*chunks: str, after: float = 0.0, every: float = 0.0) -> Answer:
    """Creates an answer whose connection breaks after the chunks.

    Args:
        *chunks: Chunks of text.
        after: Seconds until the first chunk. Default: 0.
        every: Seconds between two chunks. Default: 0.

    Returns:
        The answer.

    """
    return _reply(chunks=chunks, after=after, every=every, end="break")


def error_event(*chunks: str, after: float = 0.0, every: float = 0.0) -> Answer:
    """Creates an answer with status 200 whose stream has an error event after the chunks.

    If the request asks for no stream, the answer has status 500 instead.

    Args:
        *chunks: Chunks of text.
        after: Seconds until the first chunk. Default: 0.
        every: Seconds between two chunks. Default: 0.

    Returns:
        The answer.

    """
    return _reply(chunks=chunks, after=after, every=every, end="error")


def status(
    code: int,
    body: Any = None,
    *,
    retry_after: float | None = None,
    headers: Mapping[str, str] | None = None,
    after: float = 0.0,
) -> Answer:
    """Creates an answer with the given HTTP status.

    Args:
        code: Status, 100 to 599.
        body: Text, or data that is sent as JSON. Default: an error in the format of the API.
        retry_after: Seconds in the Retry-After header. Default: no header.
        headers: Further headers. Default: none.
        after: Seconds until the answer. Default: 0.

    Returns:
        The answer.

    Example:
        ```python
        from tidegate.testing import FakeTarget, status

        target = FakeTarget(status(500, {"error": "try later"}, retry_after=3))
        ```

    """
    fields = {"status": code, "body": body, "retry_after": retry_after, "headers": headers, "after": after}
    return Answer("status", fields)


def rate_limited(retry_after: float | None = None, *, after: float = 0.0) -> Answer:
    """Creates an answer with status 429.

    Args:
        retry_after: Seconds in the Retry-After header. Default: no header.
        after: Seconds until the answer. Default: 0.

    Returns:
        The answer.

    """
    return status(429, retry_after=retry_after, after=after)


def overloaded(retry_after: float | None = None, *, after: float = 0.0) -> Answer:
    """Creates the answer of an overloaded server: status 529 in Anthropic's API, otherwise 503.

    Args:
        retry_after: Seconds in the Retry-After header. Default: no header.
        after: Seconds until the answer. Default: 0.

    Returns:
        The answer.

    """
    return Answer("overloaded", {"retry_after": retry_after, "after": after})


def refuse_connection(*, after: float = 0.0) -> Answer:
    """Creates an answer that refuses the connection, so that the request is not sent.

    Args:
        after: Seconds until the refusal. Default: 0.

    Returns:
        The answer.

    """
    return Answer("refuse", {"after": after})


def _reply(
    text: str | None = None,
    chunks: Sequence[str] = (),
    tool_calls: Sequence[ToolCall] = (),
    end: str | None = None,
    **times: float,
) -> Answer:
    """Returns a successful answer.

    `end` is how the answer ends before it is complete, such as `stall`. With None, the answer is
    complete.
    """
    calls = [{"name": call.name, "arguments": dict(call.arguments)} for call in tool_calls]
    # Without chunks, the response ends before a first chunk.
    cut = 0 if end is not None and not chunks else None
    fields = {"text": text, "chunks": list(chunks), "tool_calls": calls, "end": end, "end_after": cut}
    return Answer("reply", {**fields, **times})
