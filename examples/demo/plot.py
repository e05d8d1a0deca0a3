"""A plot of the time to first token over time as SVG, one panel for each tenant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from load_plan import Plan
    from traffic import Call, Phase

WIDTH, PANEL, GAP = 1000, 176, 40
#: Height of a line of text below another, in pixels.
NOTE = 17
LEFT, RIGHT, TOP, BOTTOM = 62, 8, 26, 40
#: Possible ends of the y axis, in seconds. Every third one is a power of ten.
TICKS = tuple(digit * 10.0**power for power in range(-3, 4) for digit in (1, 2, 5))


@dataclass(frozen=True)
class Axes:
    """The axes of the plot: the length of the x axis and the range of the logarithmic y axis.

    All are in seconds. `low` and `high` are 1, 2 or 5 times a power of ten.
    """

    span: int
    step: int
    low: float
    high: float

    @classmethod
    def fit(cls, phases: list[Phase]) -> Axes:
        """Returns the axes that show all calls of the phases."""
        calls = [call for phase in phases for call in phase.calls]
        last = max(call.sent for call in calls)
        step = next((step for step in (5, 10, 20, 50, 100, 200) if last / step < 10), 500)
        times = [time for time in map(shown_time, calls) if time]
        low, high = min(times, default=0.1), max(times, default=1.0)
        below = max(tick for tick in TICKS if tick <= max(low, TICKS[0]))
        above = min(tick for tick in TICKS if tick >= min(max(high, 2 * below), TICKS[-1]))
        return cls(step * math.ceil(last / step), step, below, above)

    def x(self, second: float) -> float:
        """Returns the x coordinate, in pixels, of a time in seconds since the start of the phase."""
        return LEFT + (WIDTH - LEFT - RIGHT) * second / self.span

    def y(self, seconds: float, top: float) -> float:
        """Returns the y coordinate, in pixels, of a time to first token in seconds.

        `top` is the y coordinate of the upper edge of the panel.
        """
        share = math.log(max(seconds, self.low) / self.low) / math.log(self.high / self.low)
        return top + PANEL * (1 - share)

    def grid(self) -> list[tuple[float, str]]:
        """Returns the ends of the y axis and the powers of ten between them, with their labels."""
        powers = [tick for tick in TICKS[::3] if self.low < tick < self.high]
        return [(tick, f"{tick:g} s") for tick in (self.low, *powers, self.high)]


def shown_time(call: Call) -> float | None:
    """Returns the time of a call that the plot shows: to the failure, otherwise to the first token.

    It is in seconds. None if the call has neither.
    """
    if call.failure:
        return None if call.ended is None else call.ended - call.sent
    return call.ttft


def svg(plan: Plan, phases: list[Phase]) -> str:
    """Returns the plot of the phases as an SVG element."""
    axes = Axes.fit(phases)
    height = TOP + len(plan.tenants) * (PANEL + GAP) - GAP + BOTTOM
    about = "Time to first token of every call, by the time it was sent, one panel a tenant, in each phase"
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{about}">']
    for index, tenant in enumerate(plan.tenants):
        top = TOP + index * (PANEL + GAP)
        note = f"{tenant.calls} calls, {tenant.per_second:.3g} a second; cap {tenant.cap}"
        parts += panel(plan, top, axes, f"Tenant {tenant.name}", note)
        notes: list[str] = []
        for phase in phases:
            calls = [call for call in phase.calls if call.tenant == tenant.name]
            notes += failure_note(phase.name, calls, axes, top + NOTE * len(notes))
            parts += series(phase.name, calls, axes, top)
        parts += notes
    parts.append(label("burst-label", axes.x(sum(plan.burst) / 2), TOP + 16, "B bursts"))
    foot = height - BOTTOM
    for second in range(0, axes.span, axes.step):
        parts.append(label("tick", axes.x(second), foot + 18, str(second)))
    parts.append(label("tick", axes.x(axes.span), foot + 18, f"{axes.span} s", "end"))
    parts.append(label("tick", axes.x(axes.span / 2), foot + 36, "when the call was sent"))
    parts.append("</svg>")
    return "\n".join(parts)


def label(kind: str, x: float, y: float, text: str, anchor: str = "middle") -> str:
    """Returns an SVG text element at the position `x`, `y`, in pixels. `kind` is its CSS class."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def panel(plan: Plan, top: float, axes: Axes, title: str, note: str) -> list[str]:
    """Returns the SVG elements of one tenant's empty panel: title, time of the burst, and grid.

    `top` is the y coordinate of its upper edge.
    """
    start, end = (axes.x(at) for at in plan.burst)
    parts = [
        f'<rect class="burst" x="{start:.1f}" y="{top}" width="{end - start:.1f}" height="{PANEL}"/>',
        f'<text class="panel" x="{LEFT}" y="{top - 9:.0f}">{title} <tspan class="note" dx="6">{note}</tspan></text>',
    ]
    for seconds, text in axes.grid():
        y = axes.y(seconds, top)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(label("tick", LEFT - 9, y + 4, text, "end"))
    return parts


def failure_note(name: str, calls: list[Call], axes: Axes, top: float) -> list[str]:
    """Returns an SVG text with the number and kinds of a tenant's failures in the phase `name`, in a list.

    The text is beside the last failure. The list is empty if no call failed.
    """
    failed = [call for call in calls if call.failure and call.ended is not None]
    if not failed:
        return []
    last = failed[-1]
    kinds = ", ".join(sorted({call.failure or "" for call in failed}))
    x, y = axes.x(last.sent) + 10, axes.y((last.ended or last.sent) - last.sent, top) + 4
    anchor = "start"
    if x > WIDTH - 200:
        x, y, anchor = x - 20, y - 12, "end"
    return [label("note", x, y, f"{name}: {len(failed)} failed, {kinds}", anchor)]


def series(name: str, calls: list[Call], axes: Axes, top: float) -> list[str]:
    """Returns the SVG elements of a tenant's calls in the phase `name`.

    A call that succeeded is a dot at its time to first token. A call that failed is a cross at the
    time from sending to the failure.
    """
    at = [
        (call.failure, axes.x(call.sent), axes.y(time, top)) for call in calls if (time := shown_time(call)) is not None
    ]
    dots = "".join(f"M{x:.1f} {y:.1f}h0" for failure, x, y in at if not failure)
    crosses = "".join(f"M{x - 2.5:.1f} {y - 2.5:.1f}l5 5m0 -5l-5 5" for failure, x, y in at if failure)
    return [f'<path class="dots {name}" d="{dots}"/>', f'<path class="crosses {name}" d="{crosses}"/>']
