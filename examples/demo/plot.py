"""A plot of the time to first token over time as SVG, one panel for each tenant."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from load_plan import Plan
    from traffic import Call, Phase

WIDTH, PANEL, GAP = 1000, 176, 40
LEFT, RIGHT, TOP, BOTTOM = 62, 8, 26, 40
#: Range of the y axis, in seconds.
LOW, HIGH = 0.1, 100.0
GRID = ((0.1, "0.1 s"), (1.0, "1 s"), (10.0, "10 s"), (100.0, "100 s"))


def svg(plan: Plan, off: Phase, on: Phase) -> str:
    """Returns the plot of both phases as an SVG element."""
    last = max(call.sent for phase in (off, on) for call in phase.calls)
    step = next(step for step in (5, 10, 20, 50, 100) if last / step < 10)
    span = step * math.ceil(last / step)
    height = TOP + len(plan.tenants) * (PANEL + GAP) - GAP + BOTTOM
    about = "Time to first token of every call, by the time it was sent, one panel a tenant, off and on"
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{about}">']
    for index, tenant in enumerate(plan.tenants):
        top = TOP + index * (PANEL + GAP)
        note = f"{tenant.calls} calls, {tenant.per_second:g} a second; cap {tenant.cap}"
        parts += panel(plan, top, span, f"Tenant {tenant.name}", note)
        for phase in (off, on):
            calls = [call for call in phase.calls if call.tenant == tenant.name]
            parts += failure_note(calls, span, top)
            parts += series(phase.name, calls, span, top)
    parts.append(label("burst-label", x_position(sum(plan.burst) / 2, span), TOP + 16, "B bursts"))
    foot = height - BOTTOM
    for second in range(0, span, step):
        parts.append(label("tick", x_position(second, span), foot + 18, str(second)))
    parts.append(label("tick", x_position(span, span), foot + 18, f"{span} s", "end"))
    parts.append(label("tick", x_position(span / 2, span), foot + 36, "when the call was sent"))
    parts.append("</svg>")
    return "\n".join(parts)


def label(kind: str, x: float, y: float, text: str, anchor: str = "middle") -> str:
    """Returns an SVG text element at the position `x`, `y`, in pixels. `kind` is its CSS class."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def x_position(second: float, span: float) -> float:
    """Returns the x coordinate, in pixels, of a time in seconds since the start of the phase.

    `span` is the length of the x axis in seconds.
    """
    return LEFT + (WIDTH - LEFT - RIGHT) * second / span


def y_position(seconds: float, top: float) -> float:
    """Returns the y coordinate, in pixels, of a time to first token in seconds.

    The scale is logarithmic. `top` is the y coordinate of the upper edge of the panel.
    """
    share = math.log(min(max(seconds, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return top + PANEL * (1 - share)


def panel(plan: Plan, top: float, span: float, title: str, note: str) -> list[str]:
    """Returns the SVG elements of one tenant's empty panel: title, time of the burst, and grid.

    `top` is the y coordinate of its upper edge. `span` is the length of the x axis in seconds.
    """
    start, end = (x_position(at, span) for at in plan.burst)
    parts = [
        f'<rect class="burst" x="{start:.1f}" y="{top}" width="{end - start:.1f}" height="{PANEL}"/>',
        f'<text class="panel" x="{LEFT}" y="{top - 9:.0f}">{title} <tspan class="note" dx="6">{note}</tspan></text>',
    ]
    for seconds, text in GRID:
        y = y_position(seconds, top)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(label("tick", LEFT - 9, y + 4, text, "end"))
    return parts


def failure_note(calls: list[Call], span: float, top: float) -> list[str]:
    """Returns an SVG text with the number and kinds of a tenant's failures, in a list.

    The text is beside the last failure. The list is empty if no call failed.
    """
    failed = [call for call in calls if call.failure and call.ended is not None]
    if not failed:
        return []
    last = failed[-1]
    kinds = ", ".join(sorted({call.failure or "" for call in failed}))
    x, y = x_position(last.sent, span) + 10, y_position((last.ended or last.sent) - last.sent, top) + 4
    anchor = "start"
    if x > WIDTH - 200:
        x, y, anchor = x - 20, y - 12, "end"
    return [label("note", x, y, f"{len(failed)} failed: {kinds}", anchor)]


def series(name: str, calls: list[Call], span: float, top: float) -> list[str]:
    """Returns the SVG elements of a tenant's calls in the phase `name`.

    A call that succeeded is a dot at its time to first token. A call that failed is a cross at the
    time from sending to the failure.
    """
    came = [(c.sent, c.ttft) for c in calls if c.ttft is not None and not c.failure]
    dots = "".join(f"M{x_position(sent, span):.1f} {y_position(ttft, top):.1f}h0" for sent, ttft in came)
    failed = [
        (x_position(c.sent, span), y_position(c.ended - c.sent, top))
        for c in calls
        if c.failure and c.ended is not None
    ]
    crosses = "".join(f"M{x - 2.5:.1f} {y - 2.5:.1f}l5 5m0 -5l-5 5" for x, y in failed)
    return [f'<path class="dots {name}" d="{dots}"/>', f'<path class="crosses {name}" d="{crosses}"/>']
