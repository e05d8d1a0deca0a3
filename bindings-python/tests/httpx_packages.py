"""The names of the installed httpx packages (`httpx`, `httpx2`), and a function to import them."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

INSTALLED = [name for name in ("httpx", "httpx2") if importlib.util.find_spec(name)]


def module(name: str) -> Any:
    """Imports and returns the package `httpx` or `httpx2`."""
    return importlib.import_module(name)
