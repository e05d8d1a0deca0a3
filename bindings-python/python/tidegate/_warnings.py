"""The warnings of the package, each reported for the line of the user's code that caused it."""

from __future__ import annotations

import sys
import warnings

# Libraries that can replace the blocking functions of the standard library by those of green
# threads. Each entry is a module of the library, and its function that returns whether a module of
# the standard library is replaced.
_GREEN_THREADS = (("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched"))


class SlotHeldWarning(RuntimeWarning):
    """Emitted if a task waits for a tool while it holds a slot of a model.

    The slot is idle meanwhile.

    `Gate.tool` emits the warning, once for each line of the caller. With `yield_slot=True`, the
    slot is released instead and there is no warning.
    """


def warn_of_held_slot(text: str) -> None:
    """Emits a `SlotHeldWarning` for the line of the innermost caller outside this package."""
    _warn(text, SlotHeldWarning)


def warn_of_green_threads() -> None:
    """Emits a `RuntimeWarning` if gevent or eventlet has replaced the sockets of this process."""
    for name, function in _GREEN_THREADS:
        module = sys.modules.get(name)
        if module is not None and getattr(module, function)("socket"):
            library = name.partition(".")[0]
            text = (
                f"Tidegate does not support {library}: a synchronous call that waits in the gate blocks all green "
                "threads of the process, also those that would end its wait. Use workers with threads (gunicorn: "
                "`gthread`) or asyncio instead"
            )
            _warn(text, RuntimeWarning)


def _warn(text: str, category: type[Warning]) -> None:
    """Emits a warning for the line of the innermost caller outside this package."""
    frame, level = sys._getframe(), 1  # noqa: SLF001 - `warnings` counts the same frames
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("tidegate."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
