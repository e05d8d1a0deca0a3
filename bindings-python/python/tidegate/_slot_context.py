"""The context manager and decorator that holds a slot of a target or of a tool."""

from __future__ import annotations

import contextlib
import functools
import inspect
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from tidegate._context import current
from tidegate._decorated_functions import is_coroutine_function, reject_generator_function
from tidegate._errors import Error
from tidegate._event_loop import run_native
from tidegate._native import Context

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable
    from types import TracebackType

    from tidegate._native import Gate, Port
    from tidegate._types import ContextArguments

Function = TypeVar("Function", bound="Callable[..., Any]")
Entered = TypeVar("Entered")


class _HeldSlot(NamedTuple):
    """A slot that was acquired when a `with` block was entered, and is released at its end.

    `owner` is the object whose block was entered, and `permit` the native slot. `token` restores
    the context that was in force before the block.
    """

    owner: SlotContext[Any]
    permit: Any
    token: Token[Context | None]


# The slots of the enclosing `with` blocks, outermost first.
_stack: ContextVar[tuple[_HeldSlot, ...]] = ContextVar("tidegate_held", default=())


class SlotContext(Generic[Entered]):
    """A reusable context manager and decorator that holds a slot.

    One object may be entered any number of times, also concurrently. `with` blocks the calling
    thread until a slot is free; in a coroutine, use `async with`.
    """

    # The method of `tidegate.Gate` that creates the object, for error messages.
    _method: str

    def __init__(self, gate: Gate, name: str, context: ContextArguments) -> None:
        """Stores what to acquire. The constructor acquires nothing.

        Args:
            gate: The native gate.
            name: Name of the configured target or tool.
            context: Tenant, lane and deadline in seconds after entry. Each is None if it is
                inherited.

        """
        self._gate = gate
        self._name = name
        self._context = context
        # The held slots by identity, oldest first. Each operation is atomic, because threads share it.
        self._held: dict[int, _HeldSlot] = {}

    def _acquire(self, port: Port, context: Context | None) -> tuple[Future[Any], int]:
        """Requests a slot on behalf of an event loop.

        Returns the future of the native slot or error, and the number that cancels the wait.
        """
        raise NotImplementedError

    def _acquire_blocking(self, context: Context | None) -> Any:
        """Blocks the calling thread until a slot is free. Returns the native slot or the error."""
        raise NotImplementedError

    def _context_while_held(self, permit: Any, requested: Context | None) -> Context | None:  # noqa: ARG002
        """Returns the context of the calls in the `with` block, or None for the default context.

        `requested` is the context in which the slot was requested.
        """
        return requested

    def _entered_value(self, permit: Any) -> Entered:
        """Returns the value that `as` binds in the `with` statement."""
        raise NotImplementedError

    def _release(self, permit: Any, error: BaseException | None) -> None:  # noqa: ARG002
        """Releases a native slot. `error` is the exception that ended the block, or None."""
        permit.close()

    def __enter__(self) -> Entered:
        requested = self._requested_context()
        return self._enter(self._acquire_blocking(requested), requested)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._exit(error)

    async def __aenter__(self) -> Entered:
        requested = self._requested_context()
        return self._enter(await run_native(lambda port: self._acquire(port, requested)), requested)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._exit(error)

    def __call__(self, function: Function) -> Function:
        """Returns a wrapper of a function or coroutine function that holds a slot during each call.

        Raises:
            TypeError: If the function is a generator function.

        """
        reject_generator_function(
            function,
            "which would hold the slot while its consumer runs. "
            f"Use `with gate.{self._method}({self._name!r})` inside the generator instead",
        )
        if is_coroutine_function(function):

            @functools.wraps(function)
            async def async_wrapper(*args: Any, **kwargs: Any) -> Any:
                async with self:
                    return await function(*args, **kwargs)

            return cast("Function", async_wrapper)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                result = function(*args, **kwargs)
            if inspect.isawaitable(result):
                if inspect.iscoroutine(result):
                    result.close()
                raise TypeError(
                    "a function that is not a coroutine function returned an awaitable, whose work would begin after "
                    f"the slot is released. Use `async with gate.{self._method}({self._name!r})` instead"
                )
            return result

        return cast("Function", wrapper)

    def _requested_context(self) -> Context | None:
        """Returns the caller's context, changed by this object's tenant, lane and deadline.

        Returns None for the default context.
        """
        outer = current.get()
        return outer if self._context == (None, None, None) else Context(outer, *self._context)

    def _enter(self, permit: Any, requested: Context | None) -> Entered:
        """Stores the acquired slot `permit`, and returns the value that `as` binds.

        Raises `permit` if it is an error instead of a slot.
        """
        if isinstance(permit, Error):
            raise permit
        held = _HeldSlot(self, permit, current.set(self._context_while_held(permit, requested)))
        self._held[id(held)] = held
        _stack.set((*_stack.get(), held))
        return self._entered_value(permit)

    def _exit(self, error: BaseException | None) -> None:
        """Releases the slot of this object's innermost block, and restores the previous context.

        Some programs enter and leave in different contexts, for example by `asyncio.to_thread`. Then
        any slot of this object is released, which may be that of another block. That block releases
        another one at its end.
        """
        stack = _stack.get()
        entered = [entry for entry in stack if entry.owner is self]
        held = next((entry for entry in reversed(entered) if self._held.pop(id(entry), None)), None)
        if held is None:
            _, held = self._held.popitem()
        left = entered[-1] if entered else held
        _stack.set(tuple(entry for entry in stack if entry is not left))
        # The token may belong to another context.
        with contextlib.suppress(ValueError):
            current.reset(left.token)
        self._release(held.permit, error)
