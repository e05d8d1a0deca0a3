"""Experiment `demo`: the demo's three phases, over real sockets and through the official client.

Runs `examples/demo` once, with the simulator, and compares the phase in which nothing is configured
but the tenants' names with its bars. Prints one JSON object as its last line.

    python demo.py --tidegate COMMAND --out DIRECTORY
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from experiment_support import bar, report

DEMO = Path(__file__).parents[2] / "examples" / "demo"


def main() -> None:
    """Reads the command line, runs the demo, and prints the result."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tidegate", required=True, help="the command whose `sim` serves the model")
    arguments.add_argument("--out", type=Path, required=True, help="folder for the page and the figures of the demo")
    given = arguments.parse_args()
    began = time.monotonic()
    command = [sys.executable, DEMO, "--tidegate", given.tidegate, "--out", given.out]
    subprocess.run(command, check=True, stdout=sys.stderr)
    seconds = time.monotonic() - began
    phases: dict[str, Any] = json.loads((given.out / "demo.json").read_text())["figures"]
    figures: dict[str, dict[str, float]] = {}
    for phase, tenants in phases.items():
        figures[phase] = {}
        for tenant, row in tenants.items():
            figures[phase][f"{tenant}: p99 TTFT, ms"] = round(row["p99_ttft"] * 1e3)
            figures[phase][f"{tenant}: served"] = row["calls"] - row["failures"]
    ours = figures.pop("names")
    bars = [bar(f"{tenant}: p99 TTFT, ms", ours[f"{tenant}: p99 TTFT, ms"], "<=", 700) for tenant in ("A", "C")]
    bars += [bar("B: served of 225", ours["B: served"], ">=", 150), bar("duration, s", seconds, "<=", 180)]
    report("demo", ours, figures, bars)


if __name__ == "__main__":
    main()
