"""What the package's decorators find out about the functions that they wrap."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Returns True if a function, or the `__call__` of an object, is a coroutine function."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def reject_generator_function(function: Callable[..., Any], reason: str) -> None:
    """Raises a TypeError if a function, or the `__call__` of an object, is a generator function.

    The body of a generator function runs after the call, while its consumer iterates. `reason` ends the
    message: the consequence, and what to do instead.
    """
    for called in (function, type(function).__call__):
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            name = getattr(function, "__name__", type(function).__name__)
            raise TypeError(f"{name} is a generator function, {reason}")
