"""Tidegate: as many calls to each language model as it can take right now."""

from tidegate._context import context
from tidegate._errors import (
    ConfigError,
    ConnectionFailed,
    Deadline,
    Error,
    Refused,
    RequestError,
    SweepError,
    Timeout,
    Truncated,
    UnknownNameError,
)
from tidegate._explain import Explanation, Why
from tidegate._gate import Gate
from tidegate._map import Map, Result
from tidegate._native import Slot
from tidegate._sweep import (
    SweepCheck,
    SweepEstimate,
    SweepFigure,
    SweepOptions,
    SweepProgress,
    SweepQuantiles,
    SweepResult,
    SweepSpend,
    SweepStep,
    sweep,
    sweep_async,
    sweep_plan,
)
from tidegate._warnings import SlotHeldWarning

__all__ = [
    "ConfigError",
    "ConnectionFailed",
    "Deadline",
    "Error",
    "Explanation",
    "Gate",
    "Map",
    "Refused",
    "RequestError",
    "Result",
    "Slot",
    "SlotHeldWarning",
    "SweepCheck",
    "SweepError",
    "SweepEstimate",
    "SweepFigure",
    "SweepOptions",
    "SweepProgress",
    "SweepQuantiles",
    "SweepResult",
    "SweepSpend",
    "SweepStep",
    "Timeout",
    "Truncated",
    "UnknownNameError",
    "Why",
    "context",
    "sweep",
    "sweep_async",
    "sweep_plan",
]
