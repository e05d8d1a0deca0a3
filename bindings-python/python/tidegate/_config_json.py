"""The settings of a gate in Python, as the JSON that the native module reads."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from tidegate._errors import ConfigError


def to_json(config: Any) -> str:
    """Returns settings as JSON.

    Raises:
        ConfigError: If a number is infinite or NaN.
        TypeError: If a value is of a type that no setting has.

    """
    try:
        return json.dumps(config, default=_encode, allow_nan=False)
    except ValueError as error:
        if "Out of range" not in str(error):
            # The settings contain themselves.
            raise
        problem = _non_finite(config)
        raise ConfigError(f"{problem} is not possible; write a finite number", kind="config") from error


def _non_finite(value: object, path: str = "") -> str | None:
    """Returns the first number that is infinite or NaN, after its path. Returns None if there is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{path}: {value}"
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, tuple, set, frozenset)):
        items = enumerate(value)
    found = (_non_finite(inner, f"{path}.{key}" if path else str(key)) for key, inner in items)
    return next(filter(None, found), None)


def _encode(value: object) -> Any:
    """Returns a JSON value for a configuration value that `json` cannot encode.

    Raises:
        TypeError: If the value is not a timedelta, mapping, set or path.

    """
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # `datetime` would make the import of the package slower.
    seconds = getattr(value, "total_seconds", None)
    if seconds is not None:
        return seconds()
    raise TypeError(f"a configuration value must be text, a number, a list or a dict, not {type(value).__name__}")
