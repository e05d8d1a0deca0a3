"""The context of calls: tenant, lane, deadline and label."""

from __future__ import annotations

import contextlib
import functools
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from tidegate import _native

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tidegate._types import Lane

Function = TypeVar("Function", bound="Callable[..., Any]")

current: ContextVar[_native.Context | None] = ContextVar("tidegate_context", default=None)


def context(
    *,
    tenant: str | None = None,
    lane: Lane | None = None,
    deadline: float | None = None,
    call: str | None = None,
) -> CallContext:
    """Sets the tenant, lane, deadline and label of every call that is made inside the `with` block.

    As a decorator of a function or coroutine function, sets them during each of its calls. A
    deadline then begins with each call.

    The context applies to the calls of this task or thread, and to asyncio and trio tasks and
    `asyncio.to_thread` calls that start inside. Threads of a `ThreadPoolExecutor` and
    `run_in_executor` do not inherit it: enter the context in the function, or submit
    `contextvars.copy_context().run, function`. An argument that is None is inherited from the
    enclosing context.

    Args:
        tenant: Fairness key, at most 200 bytes; the rest is cut off. Default: inherited, otherwise
            `default`.
        lane: Priority class: `interactive`, `standard` or `batch`. Default: inherited, otherwise
            `standard`.
        deadline: Seconds from now, above 0, until every call inside must have ended, including its
            stream. The earlier deadline of nested contexts applies. The shorter of this and the
            `deadline` of the target (10 minutes by default) applies; to allow more, raise that of
            the target. Values above ten years are reduced to ten years. A synchronous client that
            keeps its own transport (also of requests and botocore) cannot be interrupted, so its
            calls may end later, by up to its read timeout. Default: inherited, otherwise the
            deadline of the target.
        call: Label of the calls inside, for `Gate.explain` and `Gate.calls`, at most 200 bytes; the
            rest is cut off. Default: inherited, otherwise none.

    Returns:
        The context manager and decorator. `as` names the context, with the properties `tenant`, `lane`,
        `call` and `remaining`: the seconds until the deadline, 0 if it has passed, None without a
        deadline.

    Raises:
        TypeError: If the tenant, the lane or the label is not a string, if the deadline is not a
            number, or if the decorated function is a generator function.
        ValueError: If the lane does not exist, or if the deadline is not above 0.

    Example:
        ```python
        with tidegate.context(tenant="acme", lane="batch", deadline=30):
            answer = await client.responses.create(model="gpt-4o", input="Say hello.")
        ```

    """
    return CallContext(tenant, lane, deadline, call)


class CallContext:
    """The context manager and decorator of `tidegate.context`.

    One object may be entered any number of times, also concurrently.
    """

    def __init__(self, tenant: str | None, lane: Lane | None, deadline: float | None, call: str | None) -> None:
        """Stores the arguments of `tidegate.context`, which are checked when the context is entered."""
        self._arguments = (tenant, lane, deadline, call)

    def __enter__(self) -> _native.Context:
        entered = _native.Context(current.get(), *self._arguments)
        _entered_contexts.set((*_entered_contexts.get(), _EnteredContext(self, current.set(entered))))
        return entered

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        stack = _entered_contexts.get()
        left = next((entry for entry in reversed(stack) if entry.owner is self), None)
        # A generator that is left is closed in another context, in which there is nothing to reset.
        if left is not None:
            _entered_contexts.set(tuple(entry for entry in stack if entry is not left))
            with contextlib.suppress(ValueError):
                current.reset(left.token)

    def __call__(self, function: Function) -> Function:
        """Returns a wrapper of a function or coroutine function that enters the context for each call.

        Raises:
            TypeError: If the function is a generator function.

        """
        # Imports `inspect`, which is slow.
        from tidegate._decorated_functions import (  # noqa: PLC0415
            is_coroutine_function,
            reject_generator_function,
        )

        reject_generator_function(
            function,
            "whose body would run outside of the context, while its consumer iterates. "
            "Use `with tidegate.context(...)` around the loop over it instead",
        )
        if is_coroutine_function(function):

            @functools.wraps(function)
            async def async_wrapper(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return cast("Function", async_wrapper)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast("Function", wrapper)


class _EnteredContext(NamedTuple):
    """An entered `with` block. `token` restores the context that was in force before the block."""

    owner: CallContext
    token: Token[_native.Context | None]


# The enclosing `with` blocks, outermost first.
_entered_contexts: ContextVar[tuple[_EnteredContext, ...]] = ContextVar("tidegate_entered_contexts", default=())
