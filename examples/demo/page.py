"""The report: one HTML file with the plot and the table."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import plot
import table

if TYPE_CHECKING:
    from load_plan import Plan
    from traffic import Phase

TEMPLATE = Path(__file__).with_name("page.html")
SOURCE = (
    "The post: “Per-Tenant Concurrency Caps: Protecting Well-Behaved Tenants from a Bursty Neighbor”, runs 2 and 3."
)


def render(plan: Plan, phases: list[Phase], groups: list[tuple[str, table.Rows]]) -> str:
    """Returns the HTML page of the report.

    `groups` has pairs of a title and figures: those of the phases, and for the simulator those of
    the blog post.
    """
    simulated = len(groups) > 1
    _, here = groups[0]
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        calls=plan.calls,
        introduction=introduction(plan, simulated=simulated),
        headlines=headlines(here),
        plot=plot.svg(plan, phases),
        table_title="Beside the post" if simulated else "Figures of each tenant",
        columns='<col class="group">' * sum(len(rows) for _, rows in groups),
        titles="".join(f'<th colspan="{len(rows)}">{title}</th>' for title, rows in groups),
        phases="".join(f"<th>{phase}</th>" for _, rows in groups for phase in rows),
        body=body([rows for _, rows in groups]),
        scaled=scaled(plan) if simulated else measured(plan),
        cpu=escape("; ".join(f"{phase.name} {phase.cpu}" for phase in phases)),
        source=SOURCE if simulated else "",
    )


def introduction(plan: Plan, *, simulated: bool) -> str:
    """Returns the introduction in HTML, which describes the load and the phases."""
    _, b, _ = plan.tenants
    caps = "/".join(str(tenant.cap) for tenant in plan.tenants)
    where = "one simulated vLLM worker" if simulated else "one server"
    when = "at the same time, each with a worker of its own" if simulated else "one after the other"
    return (
        f"Three tenants share {where}. A and C send at a steady rate; B sends {b.calls} calls in "
        f"{b.end - b.start:.0f} s. Every call goes through the official openai client: as it is (off), wrapped by "
        f"<code>gate.wrap(client)</code> with caps of {caps} (caps), and with nothing configured but the tenants’ "
        f"names (names). The three phases ran {when}. Through Tidegate, a call waits up to {plan.wait:g} s and then "
        "fails with 504."
    )


def headlines(here: table.Rows) -> str:
    """Returns the figures at the top of the page as HTML: p99 TTFT of A and C, served calls of B."""
    shown = {
        "A, p99 TTFT": {phase: format_time(rows["A"].p99_ttft) for phase, rows in here.items()},
        "C, p99 TTFT": {phase: format_time(rows["C"].p99_ttft) for phase, rows in here.items()},
        "B, served calls": {phase: str(rows["B"].calls - rows["B"].failures) for phase, rows in here.items()},
    }
    return "".join(f"<div><dt>{name}</dt><dd>{headline(values)}</dd></div>" for name, values in shown.items())


def headline(values: dict[str, str]) -> str:
    """Returns one figure in each phase as HTML, in the colors of the phases."""
    return " <i>→</i> ".join(f'<span class="{phase}">{value}</span>' for phase, value in values.items())


def format_time(seconds: float | None) -> str:
    """Returns a time as text: in milliseconds below 1 s, otherwise in seconds; a dash for None."""
    return table.time(seconds) if seconds is None or seconds < 1 else f"{seconds:.1f} s"


def body(groups: list[table.Rows]) -> str:
    """Returns the rows of the table of figures as HTML.

    A group is one source of figures: this run, or the blog post. It has one column for each phase.
    """
    phases = [phase for group in groups for phase in group]
    lines = []
    last = ""
    for tenant, figure, shown in table.table_rows(groups):
        head = ""
        if tenant != last:
            head = f'<th scope="rowgroup" rowspan="{len(table.FIGURES)}">{tenant}</th>'
        columns = "".join(f'<td class="{phase}">{cell}</td>' for phase, cell in zip(phases, shown, strict=True))
        opening = '<tr class="first">' if head else "<tr>"
        lines.append(f'{opening}{head}<th scope="row">{figure}</th>{columns}</tr>')
        last = tenant
    return "\n".join(lines)


def measured(plan: Plan) -> str:
    """Returns a text that says how the caps follow from the capacity of the real server."""
    _, b, _ = plan.tenants
    return (
        f"Before the run, the server was measured to serve {plan.cap} calls at once. With caps, all tenants "
        f"together have that many, and B has {b.cap} of them. Prompts of about {plan.prompt_tokens} tokens, answers of "
        f"at most {plan.output_tokens}."
    )


def scaled(plan: Plan) -> str:
    """Returns a text that compares the simulated load with that of the blog post."""
    return (
        f"Half of the post’s load (calls, rates and caps) on one of its two workers{plan.speed}. Prompts of "
        f"{plan.prompt_tokens} tokens, answers of {plan.output_tokens}, the engine and its step times are the post’s, "
        "so that TTFT and decode compare as they are, while calls and peaks are half. All times are on the post’s "
        "clock. The engine is calibrated on the post’s runs without caps; its run with caps is predicted."
    )
