"""The progress of a phase as a line of text. On a terminal, one line is rewritten."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from load_plan import Plan
    from traffic import Call, Phase

#: Ticks between two lines if the output is not a terminal.
TICKS_PER_LINE = 5


class Progress:
    """Prints the progress of a phase. `traffic.play` calls the object about once a second."""

    def __init__(self, plan: Plan) -> None:
        """Stores the plan, and detects whether the output is a terminal."""
        self._plan = plan
        self._rewrites = sys.stdout.isatty()
        self._ticks = 0

    def __call__(self, phase: Phase, now: float) -> None:
        """Prints the progress of the phase at the time `now`, in seconds since its start.

        On a terminal, rewrites one line. Otherwise, prints a new line at every fifth call.
        """
        self._ticks += 1
        if self._rewrites:
            # A line that wraps cannot be rewritten.
            line = self._line(phase, now)[: shutil.get_terminal_size().columns - 1]
            sys.stdout.write(f"\r\x1b[K{line}")
            sys.stdout.flush()
        elif self._ticks % TICKS_PER_LINE == 0:
            print(self._line(phase, now), flush=True)

    def done(self) -> None:
        """Erases the progress line on a terminal, at the end of a phase."""
        self._ticks = 0
        if self._rewrites:
            sys.stdout.write("\r\x1b[K")

    def legend(self) -> None:
        """Prints an explanation of the progress line."""
        print("  calls open, and the longest wait for a first token, these 5 s:")

    def _line(self, phase: Phase, now: float) -> str:
        start, end = self._plan.burst
        burst = "burst" if start <= now < end else "     "
        parts = [self._tenant(tenant.name, phase.calls, now) for tenant in self._plan.tenants]
        return f"  {phase.name:5} {now:4.0f} s {burst}  " + "   ".join(parts)

    def _tenant(self, tenant: str, calls: list[Call], now: float) -> str:
        own = [call for call in calls if call.tenant == tenant]
        under_way = sum(call.ended is None for call in own)
        failed = sum(call.failure is not None for call in own)
        recent = [call.ttft for call in own if call.ttft is not None and call.first and call.first > now - 5]
        waits = [now - call.sent for call in own if call.first is None and call.ended is None]
        worst = max(recent + waits, default=None)
        shown = "     –" if worst is None else f"{worst:4.1f} s"
        return f"{tenant} {under_way:3} open {shown}" + (f", {failed} failed" if failed else "")
