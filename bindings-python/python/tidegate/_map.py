"""`gate.map`: a function over items, few or without end, as many at once as the gate has room for."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from tidegate import _event_loop, _native
from tidegate._context import current

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from tidegate._types import Lane

Item = TypeVar("Item")
Value = TypeVar("Value")
_END: Any = object()


class Result(Generic[Item, Value]):
    """What became of one item.

    Attributes:
        index: the item's place in the source, from 0.
        item: the item itself.
        value: what the function returned; None where it failed.
        error: what the function raised; None where it did not. One item's error is no other's.

    """

    __slots__ = ("error", "index", "item", "value")

    def __init__(self, index: int, item: Item, value: Value | None = None, error: BaseException | None = None) -> None:
        """Say it."""
        self.index = index
        self.item = item
        self.value = value
        self.error = error

    def get(self) -> Value:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return cast("Value", self.value)

    def __repr__(self) -> str:
        """Show the outcome, not the item: it may be long, and may be a customer's."""
        outcome = f"value={self.value!r}" if self.error is None else f"error={self.error!r}"
        return f"<tidegate.Result index={self.index} {outcome}>"


class _MapOptions(NamedTuple):
    """What `Gate.map` was asked for."""

    function: Callable[[Any], Any]
    items: Iterable[Any] | AsyncIterable[Any]
    ordered: bool
    ahead: int
    window: _native.Window
    context: contextvars.Context


class Map(Generic[Item, Value]):
    """A function on its way over items. Made by `Gate.map`; iterate it once, by `async for` or by `for`."""

    def __init__(  # noqa: PLR0913, PLR0917 - as `Gate.map` has them
        self,
        function: Callable[[Item], Awaitable[Value]] | Callable[[Item], Value],
        items: Iterable[Item] | AsyncIterable[Item],
        ordered: bool,
        ahead: int,
        lane: Lane | None,
        tenant: str | None,
    ) -> None:
        """Remember what is to be done; nothing of the source is taken yet."""
        if not callable(function):
            raise TypeError(f"map: the first argument is the function, not {type(function).__name__}")
        if not hasattr(items, "__aiter__") and not hasattr(items, "__iter__"):
            raise TypeError(f"map: items are an iterable or an async iterable, not {type(items).__name__}")
        if ahead < 1:
            raise ValueError(f"ahead: {ahead} items is none at all; give 1 or more")
        outer = current.get()
        window = _native.Window(ahead, outer)
        context = contextvars.copy_context()
        context.run(current.set, window.inside(_native.Context(outer, tenant, lane)))
        self._options = _MapOptions(function, items, ordered, ahead, window, context)
        self._iterated = False

    def __aiter__(self) -> AsyncGenerator[Result[Item, Value], None]:  # noqa: PYI058 - to be closed
        """Begin. Leaving the loop, closing the iterator or cancelling the task ends what runs."""
        return self._run().results()

    def __iter__(self) -> Generator[Result[Item, Value], None, None]:
        """Begin, on an event loop of its own in this thread: where one runs already, use `async for`."""
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the public one raises where there is none
            raise RuntimeError("an event loop runs in this thread: use `async for result in gate.map(...)`")
        return _iterate_blocking(self._run())

    def _run(self) -> _MapRun[Item, Value]:
        if self._iterated:
            raise RuntimeError("this map was iterated already: its source is used up; make another one")
        self._iterated = True
        return _MapRun(self._options)


class _MapRun(Generic[Item, Value]):
    """A map under way, on one event loop: a task that feeds it from the source, and one for each item.

    Between taking an item and handing its result out there are at most `ahead`, so that a reader who is slow, or a
    result that others wait behind, stops the source and not the memory.
    """

    def __init__(self, options: _MapOptions) -> None:
        """Prepare; the source is not touched."""
        self._options = options
        self._window = options.window
        self._source = _Source(options.items)
        self._running: set[asyncio.Task[Result[Item, Value]]] = set()
        # By index; in the order of their ends.
        self._results: OrderedDict[int, Result[Item, Value]] = OrderedDict()
        self._started = self._returned = 0
        self._startable, self._result_ready = asyncio.Event(), asyncio.Event()
        self._slot_watch: tuple[_native.Port, int] | None = None
        # The source has no more, or broke: the latter is told when all else was.
        self._source_ended = False
        self._source_error: Exception | None = None
        # What ends more than one item: KeyboardInterrupt and its kin.
        self._fatal: BaseException | None = None
        self._closing = False
        self._executor: ThreadPoolExecutor | None = None
        self._is_coroutine_function = inspect.iscoroutinefunction(options.function)

    async def results(self) -> AsyncGenerator[Result[Item, Value], None]:
        """Hand the results out as they come."""
        feeder = asyncio.create_task(self._feed())
        try:
            while (result := await self._next()) is not None:
                self._returned += 1
                self._startable.set()
                yield result
            if self._source_error is not None:
                raise self._source_error
        finally:
            await self._close(feeder)

    async def _next(self) -> Result[Item, Value] | None:
        while True:
            if self._fatal is not None:
                raise self._fatal
            if not self._options.ordered and self._results:
                return self._results.popitem(last=False)[1]
            if self._returned in self._results:
                return self._results.pop(self._returned)
            if self._source_ended and not self._running and not self._results:
                return None
            self._result_ready.clear()
            await self._result_ready.wait()

    async def _feed(self) -> None:
        try:
            while True:
                await self._wait_until_startable()
                item = await self._source.next()
                if item is _END:
                    return
                self._start_item(item)
        except Exception as error:  # noqa: BLE001 - the source's own: its reader's
            self._source_error = error
        finally:
            self._source_ended = True
            self._result_ready.set()

    async def _wait_until_startable(self) -> None:
        while True:
            if self._started - self._returned < self._options.ahead:
                if self._window.begin():
                    return
                self._watch_slots()
            self._startable.clear()
            await self._startable.wait()

    def _watch_slots(self) -> None:
        """Hear of slots that come free although nothing ends."""
        if self._slot_watch is not None:
            return
        port = _event_loop.current_port()
        future, number = self._window.news(port)
        self._slot_watch = port, number
        future.add_done_callback(self._on_slots_freed)

    def _on_slots_freed(self, _: asyncio.Future[None]) -> None:
        self._slot_watch = None
        self._startable.set()

    def _start_item(self, item: Item) -> None:
        index, self._started = self._started, self._started + 1
        # The task has a copy of the context in which it was made.
        task = self._options.context.run(asyncio.create_task, self._run_item(index, item))
        self._running.add(task)
        task.add_done_callback(self._on_item_done)

    async def _run_item(self, index: int, item: Item) -> Result[Item, Value]:
        try:
            return Result(index, item, await self._call_function(item))
        except asyncio.CancelledError as error:
            if self._closing:
                raise
            # Something inside the function was cancelled by somebody else.
            return Result(index, item, error=error)
        except Exception as error:  # noqa: BLE001 - each item's own
            return Result(index, item, error=error)

    async def _call_function(self, item: Item) -> Value:
        function = self._options.function
        if not self._is_coroutine_function:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._options.ahead, "tidegate-map")
            # Threads do not inherit the context.
            calling = functools.partial(contextvars.copy_context().run, self._window.work, function, item)
            outcome = await asyncio.get_running_loop().run_in_executor(self._executor, calling)
            if not inspect.isawaitable(outcome):
                return cast("Value", outcome)
            # A lambda, say, around a coroutine function: no thread is needed from now on.
            self._is_coroutine_function = True
            return cast("Value", await outcome)
        return cast("Value", await function(item))

    def _on_item_done(self, task: asyncio.Task[Result[Item, Value]]) -> None:
        self._running.discard(task)
        self._window.end()
        if not task.cancelled():
            fatal = task.exception()
            if fatal is None:
                result = task.result()
                self._results[result.index] = result
            else:
                self._fatal = fatal
        self._startable.set()
        self._result_ready.set()

    async def _close(self, feeder: asyncio.Task[None]) -> None:
        self._closing = True
        if self._slot_watch is not None:
            port, number = self._slot_watch
            port.cancel(number)
        tasks = {feeder, *self._running}
        for task in tasks:
            task.cancel()
        try:
            await asyncio.wait(tasks)
        finally:
            if self._executor is not None:
                # They cannot be stopped, but what they wait for can: or the interpreter would wait for it, too.
                self._window.leave()
                self._executor.shutdown(wait=False, cancel_futures=True)
            await self._source.close()


class _Source:
    """Where the items come from: asked for one at a time, in the reader's thread."""

    def __init__(self, items: Iterable[Any] | AsyncIterable[Any]) -> None:
        self._asynchronous = aiter(items) if isinstance(items, AsyncIterable) else None
        self._iterator = None if isinstance(items, AsyncIterable) else iter(items)

    async def next(self) -> Any:
        """Return the next item, or `_END`."""
        if self._asynchronous is None:
            return next(cast("Iterator[Any]", self._iterator), _END)
        return await anext(self._asynchronous, _END)

    async def close(self) -> None:
        """End a generator, so that its `finally` runs. What else has a `close`, a file say, is not ours to close."""
        if isinstance(self._iterator, Generator):
            self._iterator.close()
        if isinstance(self._asynchronous, AsyncGenerator):
            await self._asynchronous.aclose()


def _iterate_blocking(run: _MapRun[Item, Value]) -> Generator[Result[Item, Value], None, None]:
    """Turn an event loop whenever the reader waits for a result."""
    loop = _event_loop.new_event_loop()
    results = run.results()
    try:
        while True:
            try:
                result = loop.run_until_complete(_next_result(results))
            except StopAsyncIteration:
                return
            yield result
    finally:
        try:
            loop.run_until_complete(results.aclose())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


async def _next_result(results: AsyncGenerator[Result[Item, Value], None]) -> Result[Item, Value]:
    return await anext(results)
