"""An event loop on virtual time: where asyncio would sleep, the native clock passes."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any

from tidegate import _native

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Executor

#: Seconds of real time between two looks at what threads and the gate have to say, while a thread works for the loop.
_POLL_INTERVAL = 0.001


class VirtualLoop(asyncio.SelectorEventLoop):
    """One order of events for asyncio, the gate and the fake target behind it."""

    def __init__(self, clock: _native.Clock) -> None:
        """Listen to the clock, and to threads that call back."""
        self._clock = clock
        self._virtual_selector = _Selector(self._wait)
        super().__init__(self._virtual_selector)
        self._virtual_selector.accepts_files = False
        # A nanosecond is lost in the figures of a year, and with it the timers that are due then.
        self._clock_resolution = 1e-6
        self._tidegate_port = _native.Port.on_virtual_time(self.create_future, self.call_soon)

    def time(self) -> float:
        """Return the seconds since virtual time began."""
        return self._clock.time()

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run the function in a thread; time stands still meanwhile, unless it waits for the gate."""
        work = self._clock.begin_work()

        def working() -> Any:
            self._clock.enter_thread(work)
            try:
                return func(*args)
            finally:
                self._clock.leave_thread()

        future = super().run_in_executor(executor, working)
        # Not before the loop knows of the result: until then there is something to do.
        future.add_done_callback(lambda _: self._clock.end_work(work))
        return future

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, **kwargs: Any) -> asyncio.Handle:  # type: ignore[override]
        """Call back on the loop's thread, and let it hear at once."""
        handle = super().call_soon_threadsafe(callback, *args, **kwargs)
        self._clock.stir()
        return handle

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ARG002
        """Wait for the executor's threads, in real time: a limit would be over at once on this one."""
        await super().shutdown_default_executor()

    def close(self) -> None:
        """Give up what is under way."""
        self._virtual_selector.accepts_files = True
        self._tidegate_port.close()
        super().close()

    def _wait(self, timeout: float | None) -> None:
        """Wait for whatever the gate brings, as long as the loop has time."""
        port = self._tidegate_port
        if timeout is not None and timeout <= 0:
            self._clock.turn()
        elif self._clock.is_busy():
            self._clock.turn()
            self._virtual_selector.poll(_POLL_INTERVAL)
        elif not self._clock.wait(port, timeout):
            raise RuntimeError(f"nothing can wake this event loop any more; what waits:\n{self._pending_tasks()}")
        port.drain()

    def _pending_tasks(self) -> str:
        tasks = [task for task in asyncio.all_tasks(self) if not task.done()]
        return "\n".join(f"  {task!r}" for task in tasks) or "  no task"


class _Selector(selectors.DefaultSelector):
    """Waits by the clock, and takes no sockets but the loop's own: they live in real time."""

    def __init__(self, wait: Callable[[float | None], None]) -> None:
        super().__init__()
        self._wait = wait
        self.accepts_files = True

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Take the loop's own pipe only."""
        if not self.accepts_files:
            raise RuntimeError(
                "this event loop runs on virtual time, in which sockets, pipes and subprocesses have no place: put a "
                "fake in their stead, or run this test on real time"
            )
        key: selectors.SelectorKey = super().register(fileobj, events, data)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what threads say; else let the clock wait, and look again."""
        return self.poll(0) or self._wait_and_poll(timeout)

    def poll(self, timeout: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Look in real time."""
        found: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
        return found

    def _wait_and_poll(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        self._wait(timeout)
        return self.poll(0)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Return what is registered."""
        found: Mapping[Any, selectors.SelectorKey] = super().get_map()
        return found
