"""Warnings that point at the caller's line."""

from __future__ import annotations

import sys
import warnings


class SlotHeldWarning(RuntimeWarning):
    """Warns that a task waits for a tool while it holds a slot of a model, which is idle meanwhile.

    `Gate.tool` emits the warning, once for each line of the caller. `yield_slot=True` releases the
    slot instead.
    """


def warn_of_held_slot(text: str) -> None:
    """Emits a `SlotHeldWarning` that points at the innermost caller outside this package."""
    frame, level = sys._getframe(), 1  # noqa: SLF001 - `warnings` counts the same frames
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("tidegate."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, SlotHeldWarning, stacklevel=level)
