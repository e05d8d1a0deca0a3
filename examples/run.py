"""Run every example against the simulator. One that fails, fails this."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
MODELS = ("gpt-4o-mini", "claude-sonnet-4-5")
#: Longer than any takes on a slow machine.
LIMIT = 120


def main() -> int:
    """Start the simulator and run them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tidegate", required=True, help="the command whose `sim` serves the models")
    parser.add_argument("programs", nargs="*", help="examples already built")
    args = parser.parse_args()
    options = ["--listen", "127.0.0.1:0", "--json", "--time-scale", "20"]
    for model in MODELS:
        options += ["--model", model]
    simulator = subprocess.Popen([args.tidegate, "sim", *options], stdout=subprocess.PIPE, text=True)
    try:
        ready = simulator.stdout.readline() if simulator.stdout else ""
        base_url = json.loads(ready)["base_url"]
        programs = [[sys.executable, str(path)] for path in sorted((HERE / "python").glob("*.py"))]
        failed = [name for name in programs + [[path] for path in args.programs] if not passes(name, base_url)]
    finally:
        simulator.terminate()
        simulator.wait(timeout=10)
    return 1 if failed else 0


def passes(command: list[str], base_url: str) -> bool:
    """Run one, and say how it went."""
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_KEY": "sk-none",
        "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": "sk-ant-none",
    }
    # From elsewhere: an example must not depend on where it is started.
    done = subprocess.run(
        [Path(command[0]).absolute(), *(Path(part).absolute() for part in command[1:])],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    passed = done.returncode == 0
    print(f"{'passed' if passed else 'FAILED'}  {Path(command[-1]).name}")
    said = [line for line in (done.stdout + done.stderr).splitlines() if line]
    shown = said[-2:] if passed else said
    print("".join(f"        {line[:200]}\n" for line in shown), end="", flush=True)
    return passed


if __name__ == "__main__":
    sys.exit(main())
