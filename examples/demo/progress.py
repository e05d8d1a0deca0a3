"""The progress of the phases as lines of text. On a terminal, the lines are rewritten."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queue import Queue

    from load_plan import Plan
    from traffic import Call, Message, Phase

#: Ticks between two lines if the output is not a terminal.
TICKS_PER_LINE = 5


class Progress:
    """Prints the progress of the phases, which run in processes of their own."""

    def __init__(self) -> None:
        """Detects whether the output is a terminal."""
        self._rewrites = sys.stdout.isatty()
        self._ticks: Counter[str] = Counter()
        #: The latest line of each phase that runs, by its name.
        self._lines: dict[str, str] = {}
        #: The number of lines above the cursor that are rewritten.
        self._shown = 0

    def follow(self, messages: Queue[Message | None]) -> None:
        """Prints what the phases tell, until a message is None.

        On a terminal, rewrites the line of the phase. Otherwise, prints every fifth one.
        """
        print("  calls open, and the longest wait for a first token, these 5 s:", flush=True)
        while message := messages.get():
            phase, text, is_last = message
            self._ticks[phase] += 1
            if is_last:
                self._lines.pop(phase, None)
                self._rewrite(text + "\n")
            elif self._rewrites:
                # A line that wraps cannot be rewritten.
                self._lines[phase] = text[: shutil.get_terminal_size().columns - 1]
                self._rewrite()
            elif self._ticks[phase] % TICKS_PER_LINE == 0:
                print(text, flush=True)

    def _rewrite(self, text: str = "") -> None:
        """Prints `text` and the lines of the phases that run, over those that were printed last."""
        # Up to the first of these lines, and erase all of them.
        start = f"\x1b[{self._shown}A\x1b[J" if self._shown else ""
        lines = [f"{line}\n" for line in self._lines.values()]
        sys.stdout.write(start + text + "".join(lines))
        sys.stdout.flush()
        self._shown = len(lines)


def line(plan: Plan, phase: Phase, now: float) -> str:
    """Returns the progress of a phase at the time `now`, in seconds since its start, as a line of text."""
    start, end = plan.burst
    burst = "burst" if start <= now < end else "     "
    parts = [of_tenant(tenant.name, phase.calls, now) for tenant in plan.tenants]
    return f"  {phase.name:5} {now:4.0f} s {burst}  " + "   ".join(parts)


def of_tenant(tenant: str, calls: list[Call], now: float) -> str:
    """Returns the progress of a tenant's calls as text."""
    own = [call for call in calls if call.tenant == tenant]
    under_way = sum(call.ended is None for call in own)
    failed = sum(call.failure is not None for call in own)
    recent = [call.ttft for call in own if call.ttft is not None and call.first and call.first > now - 5]
    waits = [now - call.sent for call in own if call.first is None and call.ended is None]
    worst = max(recent + waits, default=None)
    shown = "     –" if worst is None else f"{worst:4.1f} s"
    return f"{tenant} {under_way:3} open {shown}" + (f", {failed} failed" if failed else "")
