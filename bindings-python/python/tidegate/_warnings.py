"""The warning about tasks that wait for a tool while they hold a slot of a model.

It is reported for the line of the user's code that caused it.
"""

from __future__ import annotations

import sys
import warnings


class SlotHeldWarning(RuntimeWarning):
    """Emitted if a task waits for a tool while it holds a slot of a model.

    The slot is idle meanwhile.

    `Gate.tool` emits the warning, once for each line of the caller. With `yield_slot=True`, the
    slot is released instead and there is no warning.
    """


def warn_of_held_slot(text: str) -> None:
    """Emits a `SlotHeldWarning` for the line of the innermost caller outside this package."""
    frame, level = sys._getframe(), 1  # noqa: SLF001 - `warnings` counts the same frames
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("tidegate."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, SlotHeldWarning, stacklevel=level)
