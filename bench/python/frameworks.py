"""Experiment `frameworks`: the attempts that each framework makes for calls that fail.

Each framework is measured stock and with a gate.

Each scenario is one call to its own path of a scripted upstream, which counts the attempts. The
scenarios are one 429, permanent 429 and 500, a truncated stream, a call cancelled before headers
and mid-stream, and three calls in an event loop each (not in Node, which has only one). A probe is
any program that prints the lines that `framework_probe.py` describes. Prints one JSON object as its
last line.

    python frameworks.py OPENAI_3 OPENAI_2 MORE MORE_OPENAI_2 NODE
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from experiment_support import bar, note, report, scripted

#: The default number of attempts of a gate.
ATTEMPTS = 4
Rows = list[dict[str, Any]]


def probe(*program: str) -> Rows:
    """Runs the command `program` against an upstream of its own, whose URL is its last argument.

    Returns the JSON objects that the command prints, one for each package.
    """
    with scripted() as url:
        done = subprocess.run([*program, url], stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def shown(cell: dict[str, Any]) -> str:
    """Returns the result of one scenario in words, such as `2 attempts, answered`."""
    attempts = "1 attempt" if cell["attempts"] == 1 else f"{cell['attempts']} attempts"
    closed = f", closed {cell['closed']}" if "closed" in cell and cell["attempts"] else ""
    return f"{attempts}, {cell['ended']}{closed}"


def figures(rows: Rows, side: str) -> dict[str, dict[str, str]]:
    """Returns the results in words, by package and scenario.

    `side` is `ours` (with a gate) or `stock`.
    """
    return {row["package"]: {scenario: shown(cell) for scenario, cell in row[side].items()} for row in rows}


def bars(rows: Rows) -> list[dict[str, Any]]:
    """Returns the comparisons of the results with a gate with the limits that they must keep.

    Packages whose own retry loop was left on are excluded, except from the comparison of
    `in_flight`.
    """
    judged = [row for row in rows if not row["loops"]]

    def cells(*scenarios: str) -> list[dict[str, Any]]:
        return [row["ours"][scenario] for row in judged for scenario in scenarios if scenario in row["ours"]]

    truncated = cells("truncated stream")
    once, failing = cells("429 once"), cells("429 always", "500 always")
    cancelled = cells("cancelled before headers", "cancelled mid-stream")
    return [
        bar("most attempts of a call that meets one 429", max(cell["attempts"] for cell in once), "==", 2),
        bar("calls lost to one 429", sum(cell["ended"] != "answered" for cell in once), "<=", 0),
        bar("most attempts of a call that always fails", max(cell["attempts"] for cell in failing), "<=", ATTEMPTS),
        bar("failures without an error", sum(cell["ended"] == "answered" for cell in failing), "<=", 0),
        bar("truncated streams that end quietly", sum(cell["ended"] == "quietly" for cell in truncated), "<=", 0),
        bar("cancelled calls still open upstream", sum(cell["closed"] == "never" for cell in cancelled), "<=", 0),
        bar(
            "calls lost to another event loop",
            sum(c["ended"] != "answered" for c in cells("three event loops")),
            "<=",
            0,
        ),
        bar("in flight afterwards", sum(row["in_flight"] for row in rows), "<=", 0),
    ]


def main() -> None:
    """Runs the probes of the Python environments and of Node in turn, and prints the result."""
    openai_3, openai_2, more, more_openai_2, node = sys.argv[1:]
    script = str(Path(__file__).with_name("framework_probe.py"))
    clients = [
        (openai_3, "clients_of_openai3_environment"),
        (openai_2, "clients_of_openai2_environment"),
        (more, "clients_of_more_environment"),
        (more, "clients_http_libraries"),
        (more, "clients_ollama"),
        (more_openai_2, "clients_litellm"),
    ]
    rows = [row for python, module in clients for row in probe(python, script, module)]
    rows += probe(node, "--expose-gc", str(Path(__file__).parents[1] / "node" / "framework_probe.mjs"))
    note(f"{len(rows)} rows")
    report("frameworks", figures(rows, "ours"), {"stock": figures(rows, "stock")}, bars(rows))


if __name__ == "__main__":
    main()
