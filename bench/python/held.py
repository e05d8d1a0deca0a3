"""A client as its users hold it: one call and one stream, whatever the package calls them."""

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
class Held:
    """A client at an upstream of its own."""

    #: One answer.
    ask: Callable[[], Awaitable[object]]
    #: One stream; closing it leaves it.
    stream: Callable[[], AsyncIterator[object]]
    #: No task waits in it that could be cancelled: its calls run in threads.
    blocking: bool = False


class Package(NamedTuple):
    """A package, and how to make a client of it at an upstream, with a key, stock where there is no gate."""

    distribution: str
    make: Callable[[str, str, tidegate.Gate | None], Held]
    flavour: str = ""
    #: A retry loop of the framework's own is left on: a row that shows why not to.
    loops: bool = False

    @property
    def title(self) -> str:
        """The package with its version, and what is particular."""
        name = f"{self.distribution} {version(self.distribution)}"
        return f"{name}, {self.flavour}" if self.flavour else name


class Closable:
    """An SDK's stream as one iterator with `close`: the stream's own where it has one, else nobody holds it on."""

    def __init__(self, stream: Any) -> None:
        """Own the stream."""
        self._stream, self._parts = stream, iter(stream)

    def __iter__(self) -> Iterator[object]:
        """Return itself: a stream is read once."""
        return self

    def __next__(self) -> object:
        """Return the next part."""
        return next(self._parts)

    def close(self) -> None:
        """Leave the stream."""
        if hasattr(self._stream, "close"):
            self._stream.close()
        del self._stream, self._parts


def in_threads(ask: Callable[[], object], stream: Callable[[], Iterator[object]]) -> Held:
    """Hold a synchronous client. `stream` makes something with `close`."""

    async def parts() -> AsyncIterator[object]:
        made: Any = await asyncio.to_thread(stream)
        end = object()
        with contextlib.closing(made):
            while (part := await asyncio.to_thread(next, made, end)) is not end:
                yield part

    return Held(lambda: asyncio.to_thread(ask), parts, blocking=True)


def flat(stream: Callable[[], Awaitable[AsyncIterator[object]]]) -> Callable[[], AsyncIterator[object]]:
    """Make an iterator of a coroutine that returns one."""

    async def parts() -> AsyncIterator[object]:
        async for part in await stream():
            yield part

    return parts
