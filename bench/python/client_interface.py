"""A uniform interface to the tested packages: each client can make one call and open one stream."""

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
    """A client of one package for one upstream, as a function per kind of request."""

    #: Makes one call.
    ask: Callable[[], Awaitable[object]]
    #: Opens one stream, which is cancelled by closing it. None if the package has no streams.
    stream: Callable[[], AsyncIterator[object]] | None
    #: Whether calls run in threads, where they cannot be cancelled.
    blocking: bool = False


class Package(NamedTuple):
    """A package under test.

    `distribution` is its name on PyPI. `make` creates its client from a base URL, an API key and a
    gate; without a gate, the client is stock. `flavour` is the variant if there are several entries
    for one package, otherwise empty.
    """

    distribution: str
    make: Callable[[str, str, tidegate.Gate | None], TestedClient]
    flavour: str = ""
    #: Whether the framework's own retry loop is left on, to show its effect.
    loops: bool = False
    #: Whether the gate recognises streams of the API that end early. If not, none is cut.
    has_stream_end: bool = True

    @property
    def title(self) -> str:
        """The package name with its installed version, and the flavour if it has one."""
        name = f"{self.distribution} {version(self.distribution)}"
        return f"{name}, {self.flavour}" if self.flavour else name


class Closable:
    """An iterator over the parts of an SDK's stream that has a method `close`.

    If the SDK's stream has no such method, closing only drops the references to the stream.
    """

    def __init__(self, stream: Any) -> None:
        """Stores the SDK's stream, to which the caller should keep no reference."""
        self._stream, self._parts = stream, iter(stream)

    def __iter__(self) -> Iterator[object]:
        """Returns itself, because a stream is read once."""
        return self

    def __next__(self) -> object:
        """Returns the next part of the stream."""
        return next(self._parts)

    def close(self) -> None:
        """Closes the SDK's stream if it can be closed, and drops the references to it."""
        if hasattr(self._stream, "close"):
            self._stream.close()
        del self._stream, self._parts


def in_threads(ask: Callable[[], object], stream: Callable[[], Iterator[object]] | None = None) -> TestedClient:
    """Returns the tested client of a synchronous package, which runs in threads.

    `ask` makes one call. `stream` opens one stream, an iterator with `close`; None if the package
    has no streams.
    """

    async def parts() -> AsyncIterator[object]:
        made: Any = await asyncio.to_thread(stream)
        end = object()
        with contextlib.closing(made):
            while (part := await asyncio.to_thread(next, made, end)) is not end:
                yield part

    return TestedClient(lambda: asyncio.to_thread(ask), parts if stream else None, blocking=True)


def flat(stream: Callable[[], Awaitable[AsyncIterator[object]]]) -> Callable[[], AsyncIterator[object]]:
    """Returns a function that yields the parts of the stream that awaiting `stream()` returns."""

    async def parts() -> AsyncIterator[object]:
        async for part in await stream():
            yield part

    return parts
