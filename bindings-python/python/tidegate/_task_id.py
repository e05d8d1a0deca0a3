"""Which asyncio task or thread asks: what waits in it is waited for by everything it holds."""

from __future__ import annotations

import asyncio
import itertools
import threading

_numbers = itertools.count(1)
_thread = threading.local()
# On the task itself, as the port is on its loop: no table, and no number that comes again, as that of an address would.
_ATTRIBUTE = "_tidegate_task"


def task_id() -> int | None:
    """Return a number of the running task, or of the thread where no loop runs; None in a loop's callback."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return _id_of(_thread)
    return None if task is None else _id_of(task)


def _id_of(owner: object) -> int | None:
    number: int | None = getattr(owner, _ATTRIBUTE, None)
    if number is None:
        number = next(_numbers)
        try:
            setattr(owner, _ATTRIBUTE, number)
        except AttributeError:  # Some other implementation of tasks.
            return None
    return number
