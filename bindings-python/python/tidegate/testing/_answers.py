"""What a fake target may say. All times are seconds, fractions allowed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Answer:
    """One answer of a script. Made by `ok`, `rate_limited` and the others of this module."""

    kind: str
    fields: Mapping[str, Any]

    def times(self, count: int) -> Answer:
        """Return the same answer, given so many times. Default: once."""
        return dataclasses.replace(self, fields={**self.fields, "times": count})

    def script(self) -> dict[str, Any]:
        """Return it as a script says it: the same JSON in every language."""
        return {self.kind: {name: value for name, value in self.fields.items() if value is not None}}


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """A tool that the model asks for."""

    name: str
    arguments: Mapping[str, Any]


def tool_call(name: str, /, **arguments: Any) -> ToolCall:
    """Return a tool that the model asks for, with these arguments."""
    return ToolCall(name, arguments)


def ok(
    text: str | None = None,
    *,
    tool_calls: Sequence[ToolCall] = (),
    after: float = 0.0,
    every: float = 0.0,
) -> Answer:
    """Answer well, in the API and the manner (whole, or streamed in words) that the request asks for.

    Args:
        text: what the model says. Default: `ok`; nothing, where it asks for tools.
        tool_calls: the tools that it asks for, after the text.
        after: until the first word. What is not streamed comes whole, when its stream would have ended.
        every: between two words.

    """
    return _reply(text=text, tool_calls=tool_calls, after=after, every=every)


def stream(*chunks: str, after: float = 0.0, every: float = 0.0) -> Answer:
    """Answer well, streamed in these pieces, `every` so many seconds, the first `after` so many."""
    return _reply(chunks=chunks, after=after, every=every)


def stall(*chunks: str, after: float = 0.0, every: float = 0.0) -> Answer:
    """Send these pieces, then nothing more, ever. Without pieces: the head of the answer only."""
    return _reply(chunks=chunks, after=after, every=every, end="stall")


def truncate(*chunks: str, after: float = 0.0, every: float = 0.0) -> Answer:
    """Send these pieces, then end, cleanly, without the API's terminal event; what is not streamed ends half-way."""
    return _reply(chunks=chunks, after=after, every=every, end="truncate")


def break_off(*chunks: str, after: float = 0.0, every: float = 0.0) -> Answer:
    """Send these pieces, then break the connection."""
    return _reply(chunks=chunks, after=after, every=every, end="break")


def error_event(*chunks: str, after: float = 0.0, every: float = 0.0) -> Answer:
    """Send these pieces, then an error as an event, under status 200; what is not streamed is a 500."""
    return _reply(chunks=chunks, after=after, every=every, end="error")


def status(
    code: int,
    body: Any = None,
    *,
    retry_after: float | None = None,
    headers: Mapping[str, str] | None = None,
    after: float = 0.0,
) -> Answer:
    """Answer with any status.

    Args:
        code: the status, 100 to 599.
        body: text as it is, anything else as JSON. Default: an error in the words of the API.
        retry_after: the Retry-After. Default: none.
        headers: more headers.
        after: until it comes.

    """
    fields = {"status": code, "body": body, "retry_after": retry_after, "headers": headers, "after": after}
    return Answer("status", fields)


def rate_limited(retry_after: float | None = None, *, after: float = 0.0) -> Answer:
    """Answer 429, with a Retry-After of so many seconds if one is given."""
    return status(429, retry_after=retry_after, after=after)


def overloaded(retry_after: float | None = None, *, after: float = 0.0) -> Answer:
    """Answer that there is no room: 529 in Anthropic's API, else 503."""
    return Answer("overloaded", {"retry_after": retry_after, "after": after})


def refuse_connection(*, after: float = 0.0) -> Answer:
    """Make no connection: the request is never sent."""
    return Answer("refuse", {"after": after})


def _reply(
    text: str | None = None,
    chunks: Sequence[str] = (),
    tool_calls: Sequence[ToolCall] = (),
    end: str | None = None,
    **times: float,
) -> Answer:
    calls = [{"name": call.name, "arguments": dict(call.arguments)} for call in tool_calls]
    # Cut short before its first piece: one that never comes.
    cut = 0 if end is not None and not chunks else None
    fields = {"text": text, "chunks": list(chunks), "tool_calls": calls, "end": end, "end_after": cut}
    return Answer("reply", {**fields, **times})
