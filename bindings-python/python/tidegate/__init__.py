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

import atexit
import os
import sys
from typing import TYPE_CHECKING

from tidegate import _native
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
from tidegate._gate import Gate
from tidegate._native import Slot
from tidegate._warnings import SlotHeldWarning

if TYPE_CHECKING:
    from tidegate._explain import Explanation, Why
    from tidegate._map import Map, Result
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

# Names that few programs need, by the module that defines them. A module is imported when one of its
# names is first used, so that `import tidegate` is quick.
_DEFERRED = {
    "_explain": ("Explanation", "Why"),
    "_map": ("Map", "Result"),
    "_sweep": (
        "SweepCheck",
        "SweepEstimate",
        "SweepFigure",
        "SweepOptions",
        "SweepProgress",
        "SweepQuantiles",
        "SweepResult",
        "SweepSpend",
        "SweepStep",
        "sweep",
        "sweep_async",
        "sweep_plan",
    ),
}

# Hidden from type checkers, which would accept any name of the module otherwise.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Returns a deferred name, after importing the module that defines it."""
        from importlib import import_module  # noqa: PLC0415 - not needed by `import tidegate`

        for module, names in _DEFERRED.items():
            if name in names:
                value = globals()[name] = getattr(import_module(f"tidegate.{module}"), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """Returns the names of the module, with those that are not imported yet."""
        return sorted({*globals(), *__all__})


def _stop_at_exit_of_workers() -> None:
    """Lets children of multiprocessing and workers of Celery return their shared slots when they exit.

    Runs also in each forked child, whose parent may have imported these packages later. A second
    registration has no effect, because a second stop has none.
    """
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        # A child of multiprocessing first drops what its parent has registered for the exit, and then calls this.
        # So does a child of a fork server, which may import this package before.
        util.register_after_fork(_native, _stop_at_exit_of_child)
    _stop_at_exit_of_celery_workers()


def _stop_at_exit_of_child(_: object) -> None:
    """Registers the stop in a child of multiprocessing, which may run no functions of `atexit`."""
    from multiprocessing.util import Finalize  # noqa: PLC0415 - imported already, if this is called

    Finalize(None, _stop_without_threads, exitpriority=0)


def _stop_at_exit_of_celery_workers() -> None:
    """Registers the stop in Celery if it is imported, because its worker processes exit without finalizers."""
    signals = sys.modules.get("celery.signals")
    if signals is not None:
        signals.worker_process_shutdown.connect(_stop_without_threads, weak=False, dispatch_uid="tidegate")


def _stop_without_threads(**_: object) -> None:
    """Stops unless other threads may still make calls, for which a child of multiprocessing waits later."""
    import threading  # noqa: PLC0415 - not needed by `import tidegate`

    if all(thread.daemon or thread is threading.current_thread() for thread in threading.enumerate()):
        _native.stop()


atexit.register(_native.stop)
_stop_at_exit_of_workers()
_process = sys.modules.get("multiprocessing.process")
if _process is not None and _process.parent_process() is not None:
    _stop_at_exit_of_child(None)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_stop_at_exit_of_workers)
