"""The plot of the demo as a separate SVG file, with a legend."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import plot
from page import TEMPLATE

if TYPE_CHECKING:
    from load_plan import Plan
    from traffic import Phase

LEGEND = 34
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif'


def render(plan: Plan, off: Phase, on: Phase) -> str:
    """Returns the plot as an SVG document that follows the viewer's light or dark color scheme."""
    chart = plot.svg(plan, off, on)
    box = re.search(r'viewBox="0 0 (\d+) (\d+)"', chart)
    width, height = (int(size) for size in box.groups()) if box else (plot.WIDTH, plot.WIDTH)
    inner = chart[chart.index(">") + 1 : chart.rindex("</svg>")]
    legend = (
        f'<circle cx="{plot.LEFT + 5}" cy="17" r="4" fill="var(--off)"/>'
        f'<text class="off" x="{plot.LEFT + 16}" y="22">without Tidegate</text>'
        f'<circle cx="{plot.LEFT + 165}" cy="17" r="4" fill="var(--on)"/>'
        f'<text class="on" x="{plot.LEFT + 176}" y="22">with Tidegate</text>'
        f'<text class="note" x="{plot.LEFT + 310}" y="22">× failed</text>'
        f'<text class="note" x="{width - plot.RIGHT}" y="22" text-anchor="end">time to first token</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + LEGEND}" font-family=\'{FONT}\'>'
        f"<style>{styles()}</style>"
        f'<rect width="{width}" height="{height + LEGEND}" fill="var(--paper)"/>{legend}'
        f'<g transform="translate(0 {LEGEND})">{inner}</g></svg>\n'
    )


def styles() -> str:
    """Returns CSS for the SVG file: the colors and plot styles of the HTML page."""
    page = TEMPLATE.read_text(encoding="utf-8")
    colors = page[page.index("  :root {") : page.index("  * { box-sizing")]
    rules = "\n".join(re.findall(r"^  svg .*$", page, re.MULTILINE))
    return f"{colors}{rules}\n  svg text.off {{ fill: var(--off); }} svg text.on {{ fill: var(--on); }}"
