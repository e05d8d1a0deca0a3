"""The plot of the demo as a separate SVG file, with a legend."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import plot
from page import TEMPLATE

if TYPE_CHECKING:
    from load_plan import Plan
    from traffic import Phase

#: The color of each phase, the position of its text in pixels, and the text.
LEGEND = (
    ("off", 0, "without Tidegate"),
    ("caps", 168, "Tidegate, caps"),
    ("names", 325, "Tidegate, only the tenants’ names"),
)
LEGEND_HEIGHT = 34
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif'


def render(plan: Plan, phases: list[Phase]) -> str:
    """Returns the plot as an SVG document that follows the viewer's light or dark color scheme."""
    chart = plot.svg(plan, phases)
    box = re.search(r'viewBox="0 0 (\d+) (\d+)"', chart)
    width, height = (int(size) for size in box.groups()) if box else (plot.WIDTH, plot.WIDTH)
    inner = chart[chart.index(">") + 1 : chart.rindex("</svg>")]
    legend = "".join(
        f'<circle cx="{plot.LEFT + x + 5}" cy="17" r="4" fill="var(--{phase})"/>'
        f'<text class="{phase}" x="{plot.LEFT + x + 16}" y="22">{text}</text>'
        for phase, x, text in LEGEND
    ) + (
        f'<text class="note" x="{plot.LEFT + 640}" y="22">× failed</text>'
        f'<text class="note" x="{width - plot.RIGHT}" y="22" text-anchor="end">time to first token</text>'
    )
    height += LEGEND_HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family=\'{FONT}\'>'
        f"<style>{styles()}</style>"
        f'<rect width="{width}" height="{height}" fill="var(--paper)"/>{legend}'
        f'<g transform="translate(0 {LEGEND_HEIGHT})">{inner}</g></svg>\n'
    )


def styles() -> str:
    """Returns CSS for the SVG file: the colors and plot styles of the HTML page."""
    page = TEMPLATE.read_text(encoding="utf-8")
    colors = page[page.index("  :root {") : page.index("  * { box-sizing")]
    rules = "\n".join(re.findall(r"^  svg .*$", page, re.MULTILINE))
    texts = " ".join(f"svg text.{phase} {{ fill: var(--{phase}); }}" for phase, _, _ in LEGEND)
    return f"{colors}{rules}\n  {texts}"
