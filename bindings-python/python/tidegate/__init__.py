"""Admission control for calls of language models, below the client library that you already use.

A `Gate` sends as many calls to each model as the model can serve at the moment. It queues the other
calls, retries failures, and releases capacity when a call is cancelled.

Example:
    ```python
    import tidegate
    from openai import AsyncOpenAI

    gate = tidegate.Gate(targets={"openai": {"url": "https://api.openai.com", "cap": 64}})
    client = gate.wrap(AsyncOpenAI())
    answer = await client.responses.create(model="gpt-4o", input="Say hello.")
    ```

"""

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
