"""Who calls, how urgently, and until when."""

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
    """Say who calls, for every call made inside, in this task and the tasks it starts.

    Args:
        tenant: the fairness key, at most 200 bytes. Default: that of the context around, else `default`.
        lane: the priority class: `interactive`, `standard` or `batch`. Default: that of the context around,
            else `standard`.
        deadline: seconds from now until every call inside, streams included, must have ended. Inside
            another context the earlier of the two holds. Default: that of the context around, else the
            target's own. More than ten years count as ten.
        call: a name of your own for the calls inside, for `Gate.explain` and the log of calls; at most 200 bytes.
            Default: that of the context around, else none.

    Raises:
        ValueError: for a lane that does not exist, or a deadline that is not above 0.

    """
    entered = _native.Context(current.get(), tenant, lane, deadline, call)
    token = current.set(entered)
    try:
        yield entered
    finally:
        current.reset(token)
