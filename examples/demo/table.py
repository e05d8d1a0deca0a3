"""The table of figures: its rows, and the table as text.

A group is one source of figures, this run or the blog post. It has one column for each phase.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from figures import Row

Rows = dict[str, dict[str, "Row"]]


def time(seconds: float | None) -> str:
    """Returns a time in seconds as text in milliseconds, or a dash for None."""
    return "–" if seconds is None else f"{seconds * 1000:,.0f} ms"


FIGURES: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("median TTFT", lambda row: time(row.median_ttft)),
    ("p99 TTFT", lambda row: time(row.p99_ttft)),
    ("decode, per token", lambda row: time(row.decode)),
    ("peak in flight", lambda row: str(row.peak)),
    ("failures", lambda row: f"{row.failures} / {row.calls}"),
)


def table_rows(groups: list[Rows]) -> list[tuple[str, str, list[str]]]:
    """Returns one row per tenant and figure: tenant, name of the figure, and values as text.

    The values are those of the first group in each of its phases, then those of the next group.
    """
    lines = []
    for tenant in groups[0]["off"]:
        for name, show in FIGURES:
            shown = [show(row[tenant]) for group in groups for row in group.values()]
            lines.append((tenant, name, shown))
    return lines


def text(groups: list[tuple[str, Rows]]) -> str:
    """Returns the table of figures as text, with one column for each phase of each group.

    `groups` has pairs of a title and the figures.
    """
    width = 12
    head = " " * 28 + "".join(f"{title:^{len(rows) * width}}" for title, rows in groups)
    phases = " " * 28 + "".join(f"{phase:>{width}}" for _, rows in groups for phase in rows)
    lines = [head.rstrip(), phases]
    last = ""
    for tenant, name, shown in table_rows([rows for _, rows in groups]):
        if tenant != last:
            lines.append("")
        label = f"tenant {tenant}" if tenant != last else ""
        lines.append(f"{label:10}{name:18}" + "".join(f"{cell:>{width}}" for cell in shown))
        last = tenant
    return "\n".join(lines)
