"""The context of calls: tenant, lane, deadline and label."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING

from tidegate import _native

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate._types import Lane

current: ContextVar[_native.Context | None] = ContextVar("tidegate_context", default=None)


@contextlib.contextmanager
def context(
    *,
    tenant: str | None = None,
    lane: Lane | None = None,
    deadline: float | None = None,
    call: str | None = None,
) -> Iterator[_native.Context]:
    """Sets the tenant, lane, deadline and label of every call that is made inside the `with` block.

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

    Yields:
        The context, with the properties `tenant`, `lane`, `call` and `remaining`: the seconds until
        the deadline, 0 if it has passed, None without a deadline.

    Raises:
        TypeError: If the tenant, the lane or the label is not a string, or if the deadline is not a
            number.
        ValueError: If the lane does not exist, or if the deadline is not above 0.

    Example:
        ```python
        with tidegate.context(tenant="acme", lane="batch", deadline=30):
            answer = await client.responses.create(model="gpt-4o", input="Say hello.")
        ```

    """
    entered = _native.Context(current.get(), tenant, lane, deadline, call)
    token = current.set(entered)
    try:
        yield entered
    finally:
        # A generator that is left is closed in another context, in which there is nothing to reset.
        with contextlib.suppress(ValueError):
            current.reset(token)
