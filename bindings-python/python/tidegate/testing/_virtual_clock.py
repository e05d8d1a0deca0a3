"""Virtual time, for coroutines and for plain functions."""

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
    """Time that passes only while everything waits. In place for the whole process, between `with` and its end.

    Inside, every gate starts anew from its configuration and runs on this time; afterwards it is what it was. `run`
    runs coroutines on an event loop of the same time: `asyncio.sleep(3600)` and a Retry-After of ninety seconds take
    milliseconds, in the same order each run. A synchronous client's waits pass the same way, on whichever thread waits.

    Its limits:

    - Time stands still while Python computes, and while a function runs in the loop's executor (`asyncio.to_thread`).
      `time.sleep` and `time.monotonic` stay real: in plain functions use `advance` and `time` (to replace `time.sleep`:
      `monkeypatch.setattr(time, "sleep", clock.advance)`).
    - Sockets and subprocesses do not belong under it: its event loop refuses them, by a RuntimeError that says so.
    - A synchronous call that waits in a thread of the executor lets time pass for its event loop too. Threads of any
      other kind are unknown to it: time may pass while they compute, and their calls come in any order.
    - A coroutine that spins (`while ...: await asyncio.sleep(0)`) never waits, and so never lets time pass.

    Args:
        seed: where the jitter of backoffs comes from. Default: 0.

    Raises:
        RuntimeError: on entering, where virtual time is in place already.

    """

    def __init__(self, *, seed: int = 0) -> None:
        """Make it; it is not in place yet."""
        self._native = _native.Clock(seed)

    def __enter__(self) -> VirtualClock:
        """Put it in place of real time."""
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
        """Put real time back."""
        _event_loop.loop_factory = asyncio.new_event_loop
        self._native.leave()

    def time(self) -> float:
        """Return the seconds since it was made; what its event loops' `time()` says too."""
        return self._native.time()

    def advance(self, seconds: float) -> None:
        """Let time pass, in a plain function; what is due meanwhile happens.

        Raises:
            RuntimeError: in a coroutine: there `await asyncio.sleep(seconds)` does it.
            ValueError: for what is no number of seconds from 0 to ten years.

        """
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the public one raises where there is none
            raise RuntimeError("in a coroutine time passes by `await asyncio.sleep(seconds)`")
        self._native.advance(seconds)

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return an event loop on this time, for whoever takes a loop factory.

        Raises:
            RuntimeError: where this time is not in place.

        """
        if not _native.is_virtual():
            raise RuntimeError("virtual time is not in place: make the event loop inside `with` the clock")
        return VirtualLoop(self._native)

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine to its end, as `asyncio.run` does, on this time.

        Raises:
            RuntimeError: where it waits for something that can never come.

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
    """Run a coroutine to its end, as `asyncio.run` does, on virtual time of its own: see `VirtualClock`.

    Args:
        coroutine: what to run.
        seed: where the jitter of backoffs comes from. Default: 0.

    """
    with contextlib.closing(coroutine), VirtualClock(seed=seed) as clock:
        return clock.run(coroutine)


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
