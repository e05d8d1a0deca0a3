"""An asyncio event loop on virtual time.

When asyncio would sleep, the loop advances the native clock instead.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any

from tidegate import _native

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Executor

#: Seconds of real time between two polls of threads and gates, while a thread works for the loop.
_POLL_INTERVAL = 0.001


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time.

    The order of its callbacks and of the events of gates and fake targets is the same in each run.
    """

    def __init__(self, clock: _native.Clock) -> None:
        """Creates a loop whose sleeps advance the time of `clock`."""
        self._clock = clock
        self._virtual_selector = _Selector(self._wait)
        super().__init__(self._virtual_selector)
        self._virtual_selector.accepts_files = False
        # Floats of a year lose nanoseconds, and timers that are due at that time would be missed.
        self._clock_resolution = 1e-6
        self._tidegate_port = _native.Port.on_virtual_time(self.create_future, self.call_soon)

    def time(self) -> float:
        """Returns the virtual seconds since the clock was created."""
        return self._clock.time()

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Runs a function in a thread, and returns the future of its result.

        Virtual time does not pass until the loop has the result, unless the function waits for a
        gate.
        """
        work = self._clock.begin_work()

        def working() -> Any:
            self._clock.enter_thread(work)
            try:
                return func(*args)
            finally:
                self._clock.leave_thread()

        future = super().run_in_executor(executor, working)
        # The work ends only when the loop has the result, so that time does not pass before.
        future.add_done_callback(lambda _: self._clock.end_work(work))
        return future

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, **kwargs: Any) -> asyncio.Handle:  # type: ignore[override]
        """Schedules a callback from another thread, and wakes the loop from its virtual sleep."""
        handle = super().call_soon_threadsafe(callback, *args, **kwargs)
        self._clock.notify()
        return handle

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ARG002
        """Waits in real time for the threads of the executor.

        `timeout` is ignored, because it would count virtual seconds and pass at once.
        """
        await super().shutdown_default_executor()

    def close(self) -> None:
        """Cancels the native work of the loop, and closes the loop."""
        self._virtual_selector.accepts_files = True
        self._tidegate_port.close()
        super().close()

    def _wait(self, timeout: float | None) -> None:
        """Waits for the next native result, for at most `timeout` seconds of virtual time.

        If `timeout` is None, the wait has no limit. While a thread of the executor works for the
        loop, virtual time stands still, and the method waits in real time instead.

        Raises:
            RuntimeError: If no timer or native work is left that could wake the loop.

        """
        port = self._tidegate_port
        if timeout is not None and timeout <= 0:
            self._clock.run_ready()
        elif self._clock.is_busy():
            self._clock.run_ready()
            self._virtual_selector.poll(_POLL_INTERVAL)
        elif not self._clock.wait(port, timeout):
            raise RuntimeError(f"nothing can wake this event loop; waiting tasks:\n{self._pending_tasks()}")
        port.drain()

    def _pending_tasks(self) -> str:
        """Returns one line for each task of the loop that has not ended."""
        tasks = [task for task in asyncio.all_tasks(self) if not task.done()]
        return "\n".join(f"  {task!r}" for task in tasks) or "  no task"


class _Selector(selectors.DefaultSelector):
    """A selector that waits on virtual time.

    It accepts only the pipe by which asyncio wakes the loop, because other files become ready in
    real time.
    """

    def __init__(self, wait: Callable[[float | None], None]) -> None:
        """Creates a selector.

        `wait` is called to wait. Its argument is the maximum wait in virtual seconds; None has no
        limit.
        """
        super().__init__()
        self._wait = wait
        self.accepts_files = True

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Registers a file to watch, and returns its selector key.

        `accepts_files` is true only while the loop is created or closed, when it handles its own
        pipe.

        Raises:
            RuntimeError: If `accepts_files` is false.

        """
        if not self.accepts_files:
            raise RuntimeError(
                "this event loop runs on virtual time and does not support sockets, pipes and subprocesses: replace "
                "them with fakes, or run this test on real time"
            )
        key: selectors.SelectorKey = super().register(fileobj, events, data)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Returns the files that are ready.

        If none is ready, waits for at most `timeout` virtual seconds (without a limit if it is
        None), and polls again.
        """
        return self.poll(0) or self._wait_and_poll(timeout)

    def poll(self, timeout: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Waits until a file is ready, for at most `timeout` seconds of real time.

        Returns the files that are ready.
        """
        found: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
        return found

    def _wait_and_poll(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        self._wait(timeout)
        return self.poll(0)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Returns the registered files with their selector keys."""
        found: Mapping[Any, selectors.SelectorKey] = super().get_map()
        return found
