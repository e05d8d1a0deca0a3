"""`Gate.map`: a function over items, with as many items at once as the gate has capacity for."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator
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
    """The result of one item of `Gate.map`: a value or an error.

    Attributes:
        index: Position of the item in the source, from 0.
        item: The item.
        value: Return value of the function, or None if the function raised.
        error: Exception of the function, or None if the function returned.

    """

    __slots__ = ("error", "index", "item", "value")

    def __init__(self, index: int, item: Item, value: Value | None = None, error: BaseException | None = None) -> None:
        """Creates a result from its attributes. See the class."""
        self.index = index
        self.item = item
        self.value = value
        self.error = error

    def get(self) -> Value:
        """Returns `value`, or raises `error` if the function raised.

        Raises:
            BaseException: The exception that the function raised for this item.

        """
        if self.error is not None:
            raise self.error
        return cast("Value", self.value)

    def __repr__(self) -> str:
        """Returns the index and outcome, without the item, which may be long or confidential."""
        outcome = f"value={self.value!r}" if self.error is None else f"error={self.error!r}"
        return f"<tidegate.Result index={self.index} {outcome}>"


class _MapOptions(NamedTuple):
    """The checked arguments of `Gate.map`.

    `window` limits how many items run at the same time. `context` is the contextvars context in
    which the task of each item runs.
    """

    function: Callable[[Any], Any]
    items: Iterable[Any] | AsyncIterable[Any]
    ordered: bool
    ahead: int
    window: _native.Window
    context: contextvars.Context


class Map(Generic[Item, Value]):
    """An iterator over the results of `Gate.map`. Iterate it once, with `async for` or `for`."""

    def __init__(  # noqa: PLR0913, PLR0917 - the arguments of `Gate.map`
        self,
        function: Callable[[Item], Awaitable[Value]] | Callable[[Item], Value],
        items: Iterable[Item] | AsyncIterable[Item],
        ordered: bool,
        ahead: int,
        lane: Lane | None,
        tenant: str | None,
    ) -> None:
        """Checks the arguments of `Gate.map`, without reading from `items`."""
        if not callable(function):
            raise TypeError(f"map: the first argument must be a function, not {type(function).__name__}")
        if not hasattr(items, "__aiter__") and not hasattr(items, "__iter__"):
            raise TypeError(f"map: items must be an iterable or an async iterable, not {type(items).__name__}")
        if ahead < 1:
            raise ValueError(f"ahead: {ahead} is not valid; give 1 or more")
        outer = current.get()
        window = _native.Window(ahead, outer)
        context = contextvars.copy_context()
        context.run(current.set, window.item_context(_native.Context(outer, tenant, lane)))
        self._options = _MapOptions(function, items, ordered, ahead, window, context)
        self._iterated = False

    def __aiter__(self) -> AsyncGenerator[Result[Item, Value], None]:  # noqa: PYI058 - callers close it
        """Starts the map on the running event loop, and returns the iterator over its results.

        Leaving the loop, closing the iterator or cancelling the task cancels the running items.

        Raises:
            RuntimeError: If the map was iterated before.

        """
        return self._run().results()

    def __iter__(self) -> Generator[Result[Item, Value], None, None]:
        """Starts the map on a new event loop, and returns the iterator over its results.

        Raises:
            RuntimeError: If an event loop runs in this thread, or if the map was iterated before.

        """
        if _event_loop.running_loop_or_none() is not None:
            raise RuntimeError("an event loop runs in this thread: use `async for result in gate.map(...)`")
        return _iterate_blocking(self._run())

    def _run(self) -> _MapRun[Item, Value]:
        """Returns the run of this map, or raises `RuntimeError` if the map was iterated before."""
        if self._iterated:
            raise RuntimeError("this map was iterated already: call gate.map again")
        self._iterated = True
        return _MapRun(self._options)


class _MapRun(Generic[Item, Value]):
    """A running map on one event loop: one task that reads the source, and one task for each item.

    At most `ahead` items have been read whose results the consumer has not received. So a slow
    consumer pauses the reading of the source. With ordered results, an unfinished item that is next
    in order does the same.
    """

    def __init__(self, options: _MapOptions) -> None:
        """Prepares the run without reading from the source."""
        self._options = options
        self._window = options.window
        self._source = _Source(options.items)
        self._running: set[asyncio.Task[Result[Item, Value]]] = set()
        # By index, in order of completion.
        self._results: OrderedDict[int, Result[Item, Value]] = OrderedDict()
        self._started = self._returned = 0
        self._startable, self._result_ready = _Signal(), _Signal()
        self._slot_watch: tuple[_native.Port, int] | None = None
        # An error of the source is raised after all other results.
        self._source_ended = False
        self._source_error: BaseException | None = None
        # An exception that ends the whole map, such as KeyboardInterrupt.
        self._fatal: BaseException | None = None
        self._closing = False
        self._executor: ThreadPoolExecutor | None = None
        self._is_coroutine_function = inspect.iscoroutinefunction(options.function)

    async def results(self) -> AsyncGenerator[Result[Item, Value], None]:
        """Yields the results of the items, then raises the error of the source, if there is one."""
        feeder = _event_loop.running_loop().create_task(self._feed())
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
        """Waits for the next result. Returns None after the result of the last item."""
        while True:
            if self._fatal is not None:
                raise self._fatal
            if not self._options.ordered and self._results:
                return self._results.popitem(last=False)[1]
            if self._returned in self._results:
                return self._results.pop(self._returned)
            if self._source_ended and not self._running and not self._results:
                return None
            await self._result_ready.wait()

    async def _feed(self) -> None:
        """Reads items from the source and starts them, until the source ends or raises."""
        try:
            while True:
                await self._wait_until_startable()
                item = await self._source.next()
                if item is _END:
                    return
                self._start_item(item)
        except BaseException as error:
            # A `CancelledError` of the source itself does not end the map silently.
            if self._closing or isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            self._source_error = error
        finally:
            self._source_ended = True
            self._result_ready.set()

    async def _wait_until_startable(self) -> None:
        """Waits until `window` and `ahead` allow one more item, and counts that item as started."""
        while True:
            if self._started - self._returned < self._options.ahead:
                if self._window.begin():
                    return
                self._watch_slots()
            await self._startable.wait()

    def _watch_slots(self) -> None:
        """Makes the native window wake the reading task when it allows one more running item.

        The window may grow because slots become free, even if no item of this map has ended.
        """
        if self._slot_watch is not None:
            return
        port = _event_loop.current_port()
        future, number = self._window.ready(port)
        self._slot_watch = port, number
        future.add_done_callback(self._on_slots_freed)

    def _on_slots_freed(self, _: asyncio.Future[None]) -> None:
        """Wakes the task that reads the source, after the wake-up that `_watch_slots` requested."""
        self._slot_watch = None
        self._startable.set()

    def _start_item(self, item: Item) -> None:
        """Starts the task of one item in the context of the map."""
        index, self._started = self._started, self._started + 1
        # The task copies the context in which it is created.
        create_task = _event_loop.running_loop().create_task
        task = self._options.context.run(create_task, self._run_item(index, item))
        self._running.add(task)
        task.add_done_callback(self._on_item_done)

    async def _run_item(self, index: int, item: Item) -> Result[Item, Value]:
        """Calls the function for one item, and returns the result, which contains any exception.

        `CancelledError` is raised only while the map is being closed.
        """
        try:
            return Result(index, item, await self._call_function(item))
        except asyncio.CancelledError as error:
            if self._closing:
                raise
            # Something else cancelled the function, so this is the result of the item.
            return Result(index, item, error=error)
        except Exception as error:  # noqa: BLE001 - returned as the result of the item
            return Result(index, item, error=error)

    async def _call_function(self, item: Item) -> Value:
        """Calls the function for one item, and returns its value.

        A function that is not a coroutine function runs in a thread.
        """
        function = self._options.function
        if not self._is_coroutine_function:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._options.ahead, "tidegate-map")
            # Threads do not inherit the context.
            calling = functools.partial(
                contextvars.copy_context().run, _without_stop_iteration, self._window.run_item, function, item
            )
            outcome = await _event_loop.running_loop().run_in_executor(self._executor, calling)
            if not inspect.isawaitable(outcome):
                return cast("Value", outcome)
            # The function wraps a coroutine function, so later items need no thread.
            self._is_coroutine_function = True
            return cast("Value", await outcome)
        return cast("Value", await function(item))

    def _on_item_done(self, task: asyncio.Task[Result[Item, Value]]) -> None:
        """Stores the result of an item that has ended, and wakes the source and the consumer."""
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
        """Cancels all tasks of the map, waits for them to end, and closes the source.

        Threads are not waited for, but their waits for the gate end.
        """
        self._closing = True
        if self._slot_watch is not None:
            port, number = self._slot_watch
            port.cancel(number)
        tasks = {feeder, *self._running}
        for task in tasks:
            task.cancel()
        try:
            await _event_loop.wait_for_all(tasks)
        finally:
            if self._executor is not None:
                # Threads cannot be stopped, but their waits for the gate can. Otherwise the
                # interpreter would wait for them at exit.
                self._window.cancel_threads()
                self._executor.shutdown(wait=False, cancel_futures=True)
            await self._source.close()


class _Signal:
    """Wakes one task that waits. A signal that is set while no task waits is lost."""

    def __init__(self) -> None:
        self._wakeup: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wakes the task that waits, if there is one."""
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def wait(self) -> None:
        """Waits until the signal is set."""
        self._wakeup = _event_loop.running_loop().create_future()
        await self._wakeup


class _Source:
    """The source of a map's items, read one item at a time on the event loop of the map."""

    def __init__(self, items: Iterable[Any] | AsyncIterable[Any]) -> None:
        self._asynchronous = aiter(items) if isinstance(items, AsyncIterable) else None
        self._iterator = None if isinstance(items, AsyncIterable) else iter(items)

    async def next(self) -> Any:
        """Returns the next item, or `_END` after the last one."""
        if self._asynchronous is None:
            return next(cast("Iterator[Any]", self._iterator), _END)
        return await anext(self._asynchronous, _END)

    async def close(self) -> None:
        """Closes a source that is a generator, so that its `finally` blocks run.

        Other sources, such as files, stay open.
        """
        if isinstance(self._iterator, Generator):
            self._iterator.close()
        if isinstance(self._asynchronous, AsyncGenerator):
            await self._asynchronous.aclose()


def _without_stop_iteration(function: Callable[..., Value], *arguments: Any) -> Value:
    """Calls a function, and raises `RuntimeError` if it raises `StopIteration`, which a future cannot contain."""
    try:
        return function(*arguments)
    except StopIteration as error:
        raise RuntimeError("the function raised StopIteration") from error


def _iterate_blocking(run: _MapRun[Item, Value]) -> Generator[Result[Item, Value], None, None]:
    """Yields the results of a map without a running event loop.

    The map's own event loop runs only while the consumer waits for a result.
    """
    loop = _event_loop.new_event_loop()
    results = run.results()
    try:
        while True:
            reading = loop.create_task(_next_result(results))
            try:
                result = loop.run_until_complete(reading)
            except StopAsyncIteration:
                return
            except BaseException:
                # An interrupt leaves the task waiting inside the generator, which then cannot be closed.
                reading.cancel()
                loop.run_until_complete(asyncio.wait([reading]))
                raise
            yield result
    finally:
        try:
            loop.run_until_complete(results.aclose())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


async def _next_result(results: AsyncGenerator[Result[Item, Value], None]) -> Result[Item, Value]:
    """Returns the next result. Raises `StopAsyncIteration` after the last one."""
    return await anext(results)
