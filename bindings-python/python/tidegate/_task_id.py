"""Numbers that identify tasks of asyncio or trio, and threads.

The gate uses the numbers to detect a task that waits for a tool while it holds a slot of a model.
"""

from __future__ import annotations

import asyncio
import itertools
import threading

from tidegate._event_loop import library

_numbers = itertools.count(1)
_thread = threading.local()
# The number is an attribute of the task. The address of a task is not used, because a later task
# may have the same one.
_ATTRIBUTE = "_tidegate_task"


def task_id() -> int | None:
    """Returns the number of the running task, or of the thread if no event loop runs in it.

    Returns None in a callback of an event loop, which belongs to no task.
    """
    task: object
    if library.name == "trio":
        from tidegate._trio_loop import running_trio_task  # noqa: PLC0415 - imports trio, which is optional

        task = running_trio_task()
    else:
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = _thread
    return None if task is None else _id_of(task)


def _id_of(owner: object) -> int | None:
    """Returns the number of a task or thread, and assigns one at the first call.

    Returns None if the object does not accept the attribute that stores the number.
    """
    number: int | None = getattr(owner, _ATTRIBUTE, None)
    if number is None:
        number = next(_numbers)
        try:
            setattr(owner, _ATTRIBUTE, number)
        except AttributeError:  # Another implementation of tasks refuses attributes.
            return None
    return number
