"""The gate: the object a process shares."""

from __future__ import annotations

from typing import Any, TypeVar

from tidegate import _native
from tidegate._wrap import wrap

Client = TypeVar("Client")


class Gate:
    """Lets through as many calls to each model as it can take right now."""

    def __init__(self) -> None:
        """Open the gate."""
        self._native = _native.Gate()

    def wrap(self, client: Client) -> Client:
        """Return the client, going through this gate."""
        return wrap(self._native, client)
