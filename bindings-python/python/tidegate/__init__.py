"""Tidegate: as many calls to each language model as it can take right now."""

from tidegate._context import context
from tidegate._errors import (
    ConfigError,
    ConnectionFailed,
    Deadline,
    Error,
    Refused,
    RequestError,
    Timeout,
    Truncated,
    UnknownNameError,
)
from tidegate._explain import Explanation, Why
from tidegate._gate import Gate
from tidegate._native import Slot
from tidegate._warn import SlotHeldWarning

__all__ = [
    "ConfigError",
    "ConnectionFailed",
    "Deadline",
    "Error",
    "Explanation",
    "Gate",
    "Refused",
    "RequestError",
    "Slot",
    "SlotHeldWarning",
    "Timeout",
    "Truncated",
    "UnknownNameError",
    "Why",
    "context",
]
