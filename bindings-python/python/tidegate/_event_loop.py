"""The Python side of the bridge: one port per event loop, fork, exit."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from tidegate import _native

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate._native import Port, Waiter

# The port lives as long as its loop, on the loop: no table, no leak, no second look-up.
_ATTRIBUTE = "_tidegate_port"

# Seconds: a hundred years.
_FOREVER = 100 * 365 * 86400.0


#: Makes the loops of what runs without one; on virtual time another.
loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop for whoever has none, on the time that is in place."""
    return loop_factory()


def current_port() -> Port:
    """Return the running loop's port, made at first use."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "Tidegate's asynchronous calls run on asyncio (anyio on asyncio and uvloop included); there is no asyncio "
            "loop here. Under trio, use the synchronous client in a thread: trio.to_thread.run_sync(...)"
        ) from None
    port: Port | None = getattr(loop, _ATTRIBUTE, None)
    if port is None or not port.usable():
        port = _create_port(loop)
    return port


def _create_port(loop: asyncio.AbstractEventLoop) -> Port:
    if _native.is_virtual():
        raise RuntimeError(
            "virtual time is in place, and this event loop runs on real time: neither would wait for the other. Run "
            "the coroutine with tidegate.testing.run(...), or mark the test "
            "@pytest.mark.tidegate(virtual_time=True)"
        )
    port = _attach_with_reader(loop) or _attach_with_thread(loop)
    setattr(loop, _ATTRIBUTE, port)
    return port


def _attach_with_reader(loop: asyncio.AbstractEventLoop) -> Port | None:
    """Let the loop watch a descriptor; it drops the callback when it is closed, which closes the port."""
    port = _native.Port(loop.create_future, loop.call_soon, watched=True)
    descriptor = port.fileno()
    if descriptor is None:
        return None
    try:
        loop.add_reader(descriptor, _native.Drain(port))
    except NotImplementedError:
        return None
    return port


def _attach_with_thread(loop: asyncio.AbstractEventLoop) -> Port:
    """Let a thread wait for a loop that cannot watch descriptors (Windows' proactor).

    A closed loop drops its timers. The timer here never fires; when it is dropped, it closes the
    port, which ends the thread.
    """
    port = _native.Port(loop.create_future, loop.call_soon, watched=False)
    loop.call_later(_FOREVER, _native.Drain(port))
    threading.Thread(
        target=_drain_from_thread, args=(port.waiter(), weakref.ref(loop)), name="tidegate-port", daemon=True
    ).start()
    return port


def _drain_from_thread(waiter: Waiter, of: weakref.ref[asyncio.AbstractEventLoop]) -> None:
    """Schedule `port.drain` on the loop for each batch of results.

    Holds no strong reference while waiting.
    """
    while waiter.wait():
        loop = of()
        if loop is None:
            break
        port: Port = getattr(loop, _ATTRIBUTE)
        try:
            loop.call_soon_threadsafe(port.drain)
        except RuntimeError:  # The loop is closed, and kept its timers.
            port.close()
        del loop, port


def cancel_call(port: Port, future: asyncio.Future[Any], number: int) -> None:
    """Give up a call whose coroutine was cancelled, wherever it stands: under way, or answered a moment ago."""
    port.cancel(number)
    if future.done() and not future.cancelled():
        with contextlib.suppress(Exception):
            future.result().close()


async def run_native(start: Callable[[Port], tuple[asyncio.Future[Any], int]]) -> Any:
    """Start native work on the running loop and wait for it; cancelling drops it at once."""
    port = current_port()
    future, number = start(port)
    try:
        return await future
    except BaseException:
        cancel_call(port, future, number)
        raise


atexit.register(_native.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_native.after_fork_in_child)
