"""Runs native work on the event loops of asyncio and trio.

Native work is a call that the Rust core carries out in its own threads. Each event loop has one
native port, which carries the results of native work to the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from tidegate import _native

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tidegate._native import Port, Waiter

# `name` is "trio" while trio runs in this thread, also if it runs inside an asyncio loop (guest mode,
# notebooks). trio sets the name, by which anyio and httpcore choose their library too.
library: Any
try:
    from sniffio import thread_local as library
except ImportError:  # Without sniffio, there is no trio.
    library = SimpleNamespace(name=None)

# The port is an attribute of its loop, so the two are collected together.
_ATTRIBUTE = "_tidegate_port"

# Seconds. The timer that uses it never fires.
_FOREVER = 100 * 365 * 86400.0

#: Creates the event loops for synchronous code. Virtual time replaces the factory.
loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Returns a new event loop, created by `loop_factory`.

    In tests, while virtual time is installed, the loop runs on virtual time.
    """
    return loop_factory()


def running_loop() -> asyncio.AbstractEventLoop:
    """Returns the event loop that runs the caller.

    Under trio, this is a `TrioLoop`, which has only some methods of an asyncio event loop.

    Raises:
        RuntimeError: If neither asyncio nor trio runs the caller.

    """
    loop = running_loop_or_none()
    if loop is None:
        raise RuntimeError(
            "no event loop is running. Tidegate's asynchronous calls need asyncio, uvloop or trio (0.23 or later), "
            "directly or through anyio. Elsewhere, use the synchronous client"
        )
    return loop


def running_loop_or_none() -> asyncio.AbstractEventLoop | None:
    """Returns the event loop that runs the caller, as `running_loop` does, or None without one."""
    if library.name == "trio":
        from tidegate._trio_loop import running_trio_loop  # noqa: PLC0415 - imports trio, which is optional

        return cast("asyncio.AbstractEventLoop", running_trio_loop())
    return asyncio._get_running_loop()  # noqa: SLF001 - the public one raises without a loop


def current_port() -> Port:
    """Returns the native port of the running event loop, and creates the port at the first call.

    Raises:
        RuntimeError: If no event loop is running, or if the loop is on real time while virtual time
            is installed.

    """
    loop = None if library.name == "trio" else asyncio._get_running_loop()  # noqa: SLF001 - as above
    if loop is None:
        loop = running_loop()
    port: Port | None = getattr(loop, _ATTRIBUTE, None)
    if port is None or not port.usable():
        port = _create_port(loop)
    return port


def _create_port(loop: asyncio.AbstractEventLoop) -> Port:
    """Creates the port of a loop and stores it on the loop.

    Raises:
        RuntimeError: If virtual time is installed, because this loop is then on real time.

    """
    if _native.is_virtual():
        raise RuntimeError(
            "virtual time is installed, but this event loop runs on real time. Run the coroutine with "
            "tidegate.testing.run(...), or mark the test @pytest.mark.tidegate(virtual_time=True)"
        )
    port = _attach_with_reader(loop) or _attach_with_thread(loop)
    setattr(loop, _ATTRIBUTE, port)
    return port


def _attach_with_reader(loop: asyncio.AbstractEventLoop) -> Port | None:
    """Creates a port, and makes the loop watch the port's file descriptor for results.

    Returns None if the loop cannot watch descriptors.

    When a loop is closed, it drops its callbacks. Dropping the native callback closes the port.
    """
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
    """Creates a port, and a thread that waits for results on behalf of a loop.

    This serves loops that cannot watch descriptors, such as the proactor loop of Windows. The
    function also sets a timer that never fires. When the loop is closed, it drops the timer. This
    closes the port, which ends the thread.
    """
    port = _native.Port(loop.create_future, loop.call_soon, watched=False)
    loop.call_later(_FOREVER, _native.Drain(port))
    threading.Thread(
        target=_drain_from_thread, args=(port.waiter(), weakref.ref(loop)), name="tidegate-port", daemon=True
    ).start()
    return port


def _drain_from_thread(waiter: Waiter, loop_ref: weakref.ref[asyncio.AbstractEventLoop]) -> None:
    """Waits for results, and lets the loop deliver them, until the port is closed.

    For each batch of results, schedules `port.drain` on the loop. The thread of
    `_attach_with_thread` runs this function, which holds no strong reference to the loop while it
    waits.
    """
    while waiter.wait():
        loop = loop_ref()
        if loop is None:
            break
        port: Port = getattr(loop, _ATTRIBUTE)
        try:
            loop.call_soon_threadsafe(port.drain)
        except RuntimeError:  # The loop is closed and did not drop its timers.
            port.close()
        del loop, port


def cancel_call(port: Port, future: asyncio.Future[Any], number: int) -> None:
    """Cancels the native work with the given number, after its coroutine was cancelled.

    If the result has already arrived in `future`, the result is closed, which releases its slot.
    """
    port.cancel(number)
    if future.done() and not future.cancelled():
        with contextlib.suppress(Exception):
            future.result().close()


async def run_native(start: Callable[[Port], tuple[asyncio.Future[Any], int]]) -> Any:
    """Starts native work on the running event loop, waits for it, and returns its result.

    Cancelling the coroutine cancels the native work at once.

    Args:
        start: Starts the work on the port that it receives. Returns the future of the result, and
            the number that cancels the work.

    """
    port = current_port()
    future, number = start(port)
    try:
        return await future
    except BaseException:
        cancel_call(port, future, number)
        raise


async def wait_for_first(*futures: asyncio.Future[Any]) -> None:
    """Waits until at least one of the futures is done."""
    woken = running_loop().create_future()

    def wake(_: object) -> None:
        if not woken.done():
            woken.set_result(None)

    for future in futures:
        future.add_done_callback(wake)
    await woken


async def wait_for_all(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Waits until all tasks have ended, also if the caller is cancelled meanwhile.

    Such a cancellation is passed on to the tasks, and is raised afterwards.
    """
    loop = running_loop()
    if not isinstance(loop, asyncio.AbstractEventLoop):
        await loop.wait(tasks)
        return
    cancellation: asyncio.CancelledError | None = None
    while running := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError as error:  # noqa: PERF203 - anyio cancels again and again
            cancellation = error
            # As without the gate, it ends what an earlier cancellation has not ended.
            for task in running:
                task.cancel()
    if cancellation is not None:
        raise cancellation
