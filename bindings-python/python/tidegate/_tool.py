"""`gate.tool(name)`: a slot of a named resource that is no model."""

from __future__ import annotations

import contextlib
import functools
import inspect
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from tidegate import _native
from tidegate._bridge import run
from tidegate._context import current
from tidegate._errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tidegate._context import Lane

Function = TypeVar("Function", bound="Callable[..., Any]")


class _Held(NamedTuple):
    """One entry of the task's stack of held tools."""

    tool: Tool
    permit: _native.Permit
    before: Token[_native.Context | None]


_stack: ContextVar[tuple[_Held, ...]] = ContextVar("tidegate_tools", default=())


class Tool:
    """A slot to hold, by `with`, `async with` or as a decorator. Made by `Gate.tool`.

    The synchronous form blocks its thread while it waits: inside a coroutine use `async with`.
    """

    def __init__(
        self,
        gate: _native.Gate,
        name: str,
        tenant: str | None,
        lane: Lane | None,
        deadline: float | None,
    ) -> None:
        """Remember what to ask for; nothing is held yet."""
        self._gate = gate
        self._name = name
        self._context = (tenant, lane, deadline)
        self._held: list[_Held] = []

    def __enter__(self) -> Tool:
        """Wait for a slot."""
        return self._enter(self._gate.acquire_blocking(self._name, self._asked()))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the slot back."""
        self._exit()

    async def __aenter__(self) -> Tool:
        """Wait for a slot; cancelling leaves the queue."""
        asked = self._asked()
        return self._enter(await run(lambda port: self._gate.acquire(port, self._name, asked)))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the slot back."""
        self._exit()

    def __call__(self, function: Function) -> Function:
        """Hold a slot for the length of each call of the function."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{function.__name__} is a generator: it would hold the slot while its reader works. "
                f"Use `with gate.tool({self._name!r})` inside it, around the work"
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def waits(*args: Any, **kwargs: Any) -> Any:
                async with self:
                    return await function(*args, **kwargs)

            return cast("Function", waits)

        @functools.wraps(function)
        def blocks(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast("Function", blocks)

    def _asked(self) -> _native.Context | None:
        outer = current.get()
        return outer if self._context == (None, None, None) else _native.Context(outer, *self._context)

    def _enter(self, permit: _native.Permit | Error) -> Tool:
        if isinstance(permit, Error):
            raise permit
        held = _Held(self, permit, current.set(permit.context))
        self._held.append(held)
        _stack.set((*_stack.get(), held))
        return self

    def _exit(self) -> None:
        held = _stack.get()
        # Entered and left in different contexts (some fixtures do): any slot of ours is as good, the token foreign.
        mine = next((entry for entry in reversed(held) if entry.tool is self), None) or self._held[-1]
        self._held.remove(mine)
        _stack.set(tuple(entry for entry in held if entry is not mine))
        with contextlib.suppress(ValueError):
            current.reset(mine.before)
        mine.permit.close()
