"""Virtual time for coroutines and plain functions: waits take no real time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate import _event_loop, _native
from tidegate.testing._fake_target import reset_start_times
from tidegate.testing._virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

Result = TypeVar("Result")


class VirtualClock:
    """A clock that jumps ahead when all code waits, so that waits take no real time.

    In a `with` block, it applies to the whole process.

    Inside the block, every gate starts again from its configuration and runs on virtual time. After
    the block, each gate has its earlier state. `run` runs coroutines on an event loop of the same
    time: `asyncio.sleep(3600)` and a Retry-After of 90 s take milliseconds, and events have the
    same order in each run. The waits of synchronous clients pass in the same way on any thread.

    Limits:

    - Time does not pass while Python computes, nor while a function runs in the executor of the
      loop (`asyncio.to_thread`). `time.sleep` and `time.monotonic` remain real. In plain functions,
      use `advance` and `time`, or replace `time.sleep` by `monkeypatch.setattr(time, "sleep",
      clock.advance)`.
    - The event loop rejects sockets and subprocesses with a RuntimeError.
    - A synchronous call that waits in an executor thread also lets the time of its event loop pass.
      Other threads are unknown to the clock: time may pass while they compute, and the order of
      their calls is not fixed.
    - A coroutine that never waits (`while ...: await asyncio.sleep(0)`) stops time.

    Args:
        seed: Seed of the jitter of backoffs. Default: 0.

    Raises:
        RuntimeError: On entry, if virtual time is installed already.

    Example:
        ```python
        import asyncio

        from tidegate.testing import VirtualClock

        with VirtualClock(seed=1) as clock:
            clock.run(asyncio.sleep(3600))
            assert clock.time() == 3600
        ```

    """

    def __init__(self, *, seed: int = 0) -> None:
        """Creates the clock without installing it. For the arguments, see the class."""
        self._native = _native.Clock(seed)

    def __enter__(self) -> VirtualClock:
        """Installs virtual time for the whole process."""
        self._native.enter()
        _event_loop.loop_factory = self.new_event_loop
        reset_start_times()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Restores real time, and the earlier state of each gate."""
        _event_loop.loop_factory = asyncio.new_event_loop
        self._native.leave()

    def time(self) -> float:
        """Returns the virtual seconds since the clock was created.

        `time()` of the clock's event loops returns the same value.
        """
        return self._native.time()

    def advance(self, seconds: float) -> None:
        """Advances virtual time, in a plain function. Runs the calls and timers that become due.

        Args:
            seconds: Seconds of virtual time, from 0 to ten years.

        Raises:
            RuntimeError: If an event loop runs in this thread. In a coroutine, use `await
                asyncio.sleep(seconds)`.
            ValueError: If `seconds` is not a number in that range.

        """
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the public one raises without a loop
            raise RuntimeError("advance cannot be called in a coroutine: use `await asyncio.sleep(seconds)`")
        self._native.advance(seconds)

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Returns a new event loop that runs on virtual time, for use as a loop factory.

        Raises:
            RuntimeError: If the clock is not installed.

        """
        if not _native.is_virtual():
            raise RuntimeError("virtual time is not installed: create the event loop inside `with` the clock")
        return VirtualLoop(self._native)

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine to its end on virtual time, as `asyncio.run` does on real time.

        Args:
            coroutine: The coroutine.

        Returns:
            The result of the coroutine.

        Raises:
            RuntimeError: If the coroutine waits for something that can never happen.

        """
        loop = self.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            return loop.run_until_complete(coroutine)
        finally:
            try:
                _cancel_all(loop)
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
            finally:
                asyncio.set_event_loop(None)
                loop.close()


def run(coroutine: Coroutine[Any, Any, Result], *, seed: int = 0) -> Result:
    """Runs a coroutine to its end on a new virtual clock, as `asyncio.run` does on real time.

    Args:
        coroutine: The coroutine.
        seed: Seed of the jitter of backoffs. Default: 0.

    Returns:
        The result of the coroutine.

    Raises:
        RuntimeError: If virtual time is installed already, or if the coroutine waits for something
            that can never happen.

    Example:
        ```python
        import asyncio

        from tidegate.testing import run

        run(asyncio.sleep(3600))  # returns after a few milliseconds
        ```

    """
    with contextlib.closing(coroutine), VirtualClock(seed=seed) as clock:
        return clock.run(coroutine)


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels the tasks of an event loop, and runs the loop until they have ended."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
