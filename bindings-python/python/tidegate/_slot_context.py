"""The context manager and decorator that holds a slot of a target or of a tool."""

from __future__ import annotations

import contextlib
import functools
import inspect
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from tidegate._context import current
from tidegate._errors import Error
from tidegate._event_loop import run_native
from tidegate._native import Context

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable
    from types import TracebackType

    from tidegate._native import Gate, Port
    from tidegate._types import Lane

Function = TypeVar("Function", bound="Callable[..., Any]")
Entered = TypeVar("Entered")


class _HeldSlot(NamedTuple):
    """One slot that the current task holds."""

    owner: SlotContext[Any]
    permit: Any
    token: Token[Context | None]


_stack: ContextVar[tuple[_HeldSlot, ...]] = ContextVar("tidegate_held", default=())


class SlotContext(Generic[Entered]):
    """A reusable context manager and decorator that holds a slot.

    One object may be entered any number of times, also concurrently. The synchronous form blocks
    its thread while it waits; in a coroutine, use `async with`.
    """

    _method: str

    def __init__(
        self,
        gate: Gate,
        name: str,
        tenant: str | None,
        lane: Lane | None,
        deadline: float | None,
    ) -> None:
        """Stores what to acquire. The constructor acquires nothing."""
        self._gate = gate
        self._name = name
        self._context = (tenant, lane, deadline)
        self._held: list[_HeldSlot] = []

    def _acquire(self, port: Port, context: Context | None) -> tuple[Future[Any], int]:
        """Starts to wait for a permit on the port of the running loop."""
        raise NotImplementedError

    def _acquire_blocking(self, context: Context | None) -> Any:
        """Waits for a permit and returns it, or the error."""
        raise NotImplementedError

    def _context_while_held(self, permit: Any, asked: Context | None) -> Context | None:
        """Returns the context of calls that are made while the permit is held."""
        raise NotImplementedError

    def _entered_value(self, permit: Any) -> Entered:
        """Returns the value of `as` in the `with` statement."""
        raise NotImplementedError

    def _release(self, permit: Any, error: BaseException | None) -> None:
        """Releases the permit. `error` is the exception that ended the block, or None."""
        raise NotImplementedError

    def __enter__(self) -> Entered:
        """Waits for a slot."""
        asked = self._requested_context()
        return self._enter(self._acquire_blocking(asked), asked)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Releases the slot."""
        self._exit(error)

    async def __aenter__(self) -> Entered:
        """Waits for a slot. Cancellation removes the wait from the queue."""
        asked = self._requested_context()
        return self._enter(await run_native(lambda port: self._acquire(port, asked)), asked)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Releases the slot."""
        self._exit(error)

    def __call__(self, function: Function) -> Function:
        """Returns a function that holds a slot during each call.

        Raises:
            TypeError: If the function is a generator function.

        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{function.__name__} is a generator function, which would hold the slot while its consumer runs. "
                f"Use `with gate.{self._method}({self._name!r})` inside the generator instead"
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def async_wrapper(*args: Any, **kwargs: Any) -> Any:
                async with self:
                    return await function(*args, **kwargs)

            return cast("Function", async_wrapper)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast("Function", wrapper)

    def _requested_context(self) -> Context | None:
        outer = current.get()
        return outer if self._context == (None, None, None) else Context(outer, *self._context)

    def _enter(self, permit: Any, asked: Context | None) -> Entered:
        if isinstance(permit, Error):
            raise permit
        held = _HeldSlot(self, permit, current.set(self._context_while_held(permit, asked)))
        self._held.append(held)
        _stack.set((*_stack.get(), held))
        return self._entered_value(permit)

    def _exit(self, error: BaseException | None) -> None:
        held = _stack.get()
        # Some fixtures enter and leave in different contexts. Then any slot of this object can be
        # released, and the token belongs to the other context.
        mine = next((entry for entry in reversed(held) if entry.owner is self), None) or self._held[-1]
        self._held.remove(mine)
        _stack.set(tuple(entry for entry in held if entry is not mine))
        with contextlib.suppress(ValueError):
            current.reset(mine.token)
        self._release(mine.permit, error)
