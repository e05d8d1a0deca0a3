"""The httpx families that are installed."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

INSTALLED = [name for name in ("httpx", "httpx2") if importlib.util.find_spec(name)]


def module(name: str) -> Any:
    """Return the package of that family."""
    return importlib.import_module(name)
