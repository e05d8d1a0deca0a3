"""Sweeps: measurements that find the concurrency cap of a server."""

from tidegate._sweep.options import SweepOptions
from tidegate._sweep.progress import SweepProgress
from tidegate._sweep.result import (
    SweepCheck,
    SweepEstimate,
    SweepFigure,
    SweepQuantiles,
    SweepResult,
    SweepSpend,
    SweepStep,
)
from tidegate._sweep.runner import sweep, sweep_async, sweep_plan

__all__ = [
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
]
