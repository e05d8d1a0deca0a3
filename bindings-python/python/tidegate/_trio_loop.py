"""Implements on trio the parts of asyncio's loops, futures and tasks that the package uses.

The native bridge and the package are written for asyncio's interface. The module imports trio, so
it is imported only in programs that run trio.
"""

from __future__ import annotations

import contextlib
import contextvars
import types
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable
    from concurrent.futures import Executor
    from concurrent.futures import Future as ThreadFuture

# Tasks of trio accept no attributes.
_task_attributes: WeakKeyDictionary[trio.lowlevel.Task, types.SimpleNamespace] = WeakKeyDictionary()
_loop: trio.lowlevel.RunVar[TrioLoop | None] = trio.lowlevel.RunVar("tidegate_loop", None)


def running_trio_loop() -> TrioLoop:
    """Returns the loop of the current trio run, and creates the loop at the first call."""
    loop = _loop.get()
    if loop is None:
        loop = TrioLoop()
        _loop.set(loop)
    return loop


def running_trio_task() -> object | None:
    """Returns an object that belongs to the running trio task alone and accepts attributes.

    Returns None in a callback of trio, which belongs to no task.
    """
    try:
        task = trio.lowlevel.current_task()
    except RuntimeError:
        return None
    return _task_attributes.setdefault(task, types.SimpleNamespace())


class TrioFuture:
    """A future that a trio task awaits. Cancelling the task leaves the future as it is."""

    def __init__(self) -> None:
        self._done_event = trio.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Any], object]] = []

    def done(self) -> bool:
        """Returns `True` if the future has a result or an exception."""
        return self._done_event.is_set()

    def cancelled(self) -> bool:
        """Returns `True` if the future was cancelled. Only tasks can be cancelled."""
        return False

    def exception(self) -> BaseException | None:
        """Returns the exception of a future that is done, or None."""
        return self._error

    def result(self) -> Any:
        """Returns the result of a future that is done, or raises its exception."""
        if self._error is not None:
            raise self._error
        return self._value

    def set_result(self, value: Any) -> None:
        """Sets the result, and resumes the tasks that await the future."""
        self._value = value
        self._end()

    def set_exception(self, error: BaseException) -> None:
        """Sets the exception, and resumes the tasks that await the future."""
        self._error = error
        self._end()

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Calls `callback` with the future as soon as the future is done."""
        if self.done():
            callback(self)
        else:
            self._callbacks.append(callback)

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from self._done_event.wait().__await__()
        return self.result()

    def _end(self) -> None:
        self._done_event.set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


class TrioTask(TrioFuture):
    """A coroutine that runs in a system task of trio, which may outlive the task that started it.

    The coroutine runs in a copy of the current contextvars context. trio cancels it when the main
    task of the run has ended.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Starts the coroutine."""
        super().__init__()
        self._scope = trio.CancelScope()
        trio.lowlevel.spawn_system_task(self._run, coroutine, context=contextvars.copy_context())

    def cancel(self) -> None:
        """Cancels the coroutine. Does not start it if it has not begun."""
        self._scope.cancel()

    def cancelled(self) -> bool:
        """Returns `True` if the coroutine has ended because `cancel` was called."""
        return self._scope.cancelled_caught

    async def ended(self) -> None:
        """Waits until the coroutine has ended, and ignores its result."""
        await self._done_event.wait()

    async def _run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        # An exception of a system task would end the whole run, so each is kept.
        try:
            with self._scope:
                try:
                    await trio.lowlevel.checkpoint_if_cancelled()
                    self._value = await coroutine
                finally:
                    coroutine.close()
        except BaseException as error:  # noqa: BLE001 - the result of the task
            self._error = error
        self._end()


class TrioLoop:
    """The methods of an asyncio event loop that the package uses, on the current trio run.

    Methods must be called on the thread of the run, except `call_soon_threadsafe`.
    """

    create_future = TrioFuture
    create_task = TrioTask

    def __init__(self) -> None:
        """Creates the loop of the current trio run."""
        self._token = trio.lowlevel.current_trio_token()

    def call_soon(self, callback: Callable[..., object]) -> None:
        """Calls a function, which must not raise, after the tasks that are ready now have run."""
        self._token.run_sync_soon(callback)

    def call_soon_threadsafe(self, callback: Callable[..., object]) -> None:
        """Calls a function, which must not raise, on the thread of the run.

        Raises:
            RuntimeError: If the run has ended.

        """
        self._token.run_sync_soon(callback)

    def add_reader(self, descriptor: int, callback: Callable[[], object]) -> None:
        """Calls a function whenever a descriptor is readable, until the run ends."""

        async def watch() -> None:
            while True:
                await trio.lowlevel.wait_readable(descriptor)
                callback()

        trio.lowlevel.spawn_system_task(watch, name="tidegate")

    def call_later(self, delay: float, callback: Callable[[], object]) -> None:
        """Calls a function after `delay` seconds, unless the run ends before."""

        async def wait() -> None:
            await trio.sleep(delay)
            callback()

        trio.lowlevel.spawn_system_task(wait, name="tidegate")

    def run_in_executor(self, executor: Executor, function: Callable[[], Any]) -> TrioFuture:
        """Runs a function in a thread of an executor. Returns the future of its result."""
        future = TrioFuture()

        def settle(running: ThreadFuture[Any]) -> None:
            error = running.exception()
            if error is None:
                future.set_result(running.result())
            else:
                future.set_exception(error)

        def on_done(running: ThreadFuture[Any]) -> None:
            if not running.cancelled():
                with contextlib.suppress(trio.RunFinishedError):
                    self._token.run_sync_soon(settle, running)

        executor.submit(function).add_done_callback(on_done)
        return future

    async def wait(self, tasks: Iterable[TrioTask]) -> None:
        """Waits until all tasks have ended, also if the caller is cancelled meanwhile."""
        with trio.CancelScope(shield=True):
            for task in tasks:
                await task.ended()
