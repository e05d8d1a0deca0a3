"""A uniform interface to the tested clients: one call and one stream."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    import tidegate

ASK = "What is a slack tide?"
CHAT: Any = [{"role": "user", "content": ASK}]


@dataclass(frozen=True)
class TestedClient:
    """A client of an upstream of its own."""

    #: Makes one call.
    ask: Callable[[], Awaitable[object]]
    #: Opens one stream, which is cancelled by closing it.
    stream: Callable[[], AsyncIterator[object]]
    #: Whether calls run in threads, where they cannot be cancelled.
    blocking: bool = False


class Package(NamedTuple):
    """A package, with a constructor of its client from a URL, a key and a gate. Without a gate the client is stock."""

    distribution: str
    make: Callable[[str, str, tidegate.Gate | None], TestedClient]
    flavour: str = ""
    #: Whether the framework's own retry loop is left on, to show its effect.
    loops: bool = False

    @property
    def title(self) -> str:
        """The package with its version, and its flavour."""
        name = f"{self.distribution} {version(self.distribution)}"
        return f"{name}, {self.flavour}" if self.flavour else name


class Closable:
    """An SDK's stream as an iterator with `close`. If the stream has no `close`, its references are dropped."""

    def __init__(self, stream: Any) -> None:
        """Take ownership of the stream."""
        self._stream, self._parts = stream, iter(stream)

    def __iter__(self) -> Iterator[object]:
        """Return itself, because a stream is read once."""
        return self

    def __next__(self) -> object:
        """Return the next part."""
        return next(self._parts)

    def close(self) -> None:
        """Close the stream."""
        if hasattr(self._stream, "close"):
            self._stream.close()
        del self._stream, self._parts


def in_threads(ask: Callable[[], object], stream: Callable[[], Iterator[object]]) -> TestedClient:
    """Return a synchronous client that runs in threads. `stream` returns an iterator with `close`."""

    async def parts() -> AsyncIterator[object]:
        made: Any = await asyncio.to_thread(stream)
        end = object()
        with contextlib.closing(made):
            while (part := await asyncio.to_thread(next, made, end)) is not end:
                yield part

    return TestedClient(lambda: asyncio.to_thread(ask), parts, blocking=True)


def flat(stream: Callable[[], Awaitable[AsyncIterator[object]]]) -> Callable[[], AsyncIterator[object]]:
    """Turn a coroutine that returns an iterator into an iterator."""

    async def parts() -> AsyncIterator[object]:
        async for part in await stream():
            yield part

    return parts
