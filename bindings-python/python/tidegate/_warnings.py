"""Warnings to the line of the user's that they are about."""

from __future__ import annotations

import sys
import warnings


class SlotHeldWarning(RuntimeWarning):
    """A task waits for a tool while it holds a slot of a model, which idles meanwhile."""


def warn_of_held_slot(text: str) -> None:
    """Warn whoever is the first above this package; Python shows it once for each line."""
    frame, level = sys._getframe(), 1  # noqa: SLF001 - what `warnings` itself counts
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("tidegate."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, SlotHeldWarning, stacklevel=level)
