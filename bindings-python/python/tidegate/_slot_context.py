"""Holding a slot: `with`, `async with`, or a decorator, for whatever is held."""

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
    """One entry of the task's stack of what it holds."""

    owner: SlotContext[Any]
    permit: Any
    token: Token[Context | None]


_stack: ContextVar[tuple[_HeldSlot, ...]] = ContextVar("tidegate_held", default=())


class SlotContext(Generic[Entered]):
    """A slot to hold. One object may be entered any number of times, also at once.

    The synchronous form blocks its thread while it waits: inside a coroutine use `async with`.
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
        """Remember what to ask for; nothing is held yet."""
        self._gate = gate
        self._name = name
        self._context = (tenant, lane, deadline)
        self._held: list[_HeldSlot] = []

    def _acquire(self, port: Port, context: Context | None) -> tuple[Future[Any], int]:
        """Start waiting for a permit."""
        raise NotImplementedError

    def _acquire_blocking(self, context: Context | None) -> Any:
        """Wait for a permit."""
        raise NotImplementedError

    def _context_while_held(self, permit: Any, asked: Context | None) -> Context | None:
        """Return the context of what is called while the permit is held."""
        raise NotImplementedError

    def _entered_value(self, permit: Any) -> Entered:
        """Return what `as` names."""
        raise NotImplementedError

    def _release(self, permit: Any, error: BaseException | None) -> None:
        """Give the permit back."""
        raise NotImplementedError

    def __enter__(self) -> Entered:
        """Wait for a slot."""
        asked = self._requested_context()
        return self._enter(self._acquire_blocking(asked), asked)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the slot back."""
        self._exit(error)

    async def __aenter__(self) -> Entered:
        """Wait for a slot; cancelling leaves the queue."""
        asked = self._requested_context()
        return self._enter(await run_native(lambda port: self._acquire(port, asked)), asked)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the slot back."""
        self._exit(error)

    def __call__(self, function: Function) -> Function:
        """Hold a slot for the length of each call of the function."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{function.__name__} is a generator: it would hold the slot while its reader works. "
                f"Use `with gate.{self._method}({self._name!r})` inside it, around the work"
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
        # Entered and left in different contexts (some fixtures do): any slot of ours is as good, the token foreign.
        mine = next((entry for entry in reversed(held) if entry.owner is self), None) or self._held[-1]
        self._held.remove(mine)
        _stack.set(tuple(entry for entry in held if entry is not mine))
        with contextlib.suppress(ValueError):
            current.reset(mine.token)
        self._release(mine.permit, error)
