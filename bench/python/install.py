"""Experiment `install`: the size of the package, and the CPU time of importing it.

Sizes are those of the files that pip installs, without bytecode; *with dependencies* adds the
installed packages that are required without an extra. MB are 10**6 bytes. CPU times are minima over
fresh interpreters, which take turns. Prints one JSON object as its last line.

    python install.py WHEEL [--rounds 40]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from experiment_support import bar, note, report

PEERS = ("httpx2", "aiohttp", "openai")
IMPORT, FIRST_CLIENT = "import, ms CPU", "import and first client after import of httpx2, ms CPU"

# The statements before the measured ones, and the measured ones, by figure and package.
PROGRAMS = {(IMPORT, name): ("", f"import {name}") for name in ("tidegate", *PEERS)}
PROGRAMS[FIRST_CLIENT, "tidegate"] = ("import httpx2", "import tidegate; tidegate.Gate().httpx_client()")
PROGRAMS[FIRST_CLIENT, "httpx2"] = ("import httpx2", "httpx2.Client()")


def cpu_ms(before: str, measured: str) -> float:
    """Returns the CPU time of the statements `measured` in a fresh interpreter, in milliseconds.

    `before` are statements that run first and are not measured.
    """
    script = (
        f"{before}\nfrom time import process_time\nbegan = process_time()\n{measured}\nprint(process_time() - began)"
    )
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return float(run.stdout) * 1e3


def size(package: Distribution) -> int:
    """Returns the size of the files that a package has installed, in bytes, without bytecode."""
    paths = (Path(str(file.locate())) for file in package.files or () if file.suffix != ".pyc")
    return sum(path.stat().st_size for path in paths if path.is_file())


def with_dependencies(name: str, found: dict[str, Distribution]) -> dict[str, Distribution]:
    """Adds a package to `found`, with the installed packages that it requires. Returns `found`."""
    try:
        package = distribution(name)
    except PackageNotFoundError:
        return found
    if package.name not in found:
        found[package.name] = package
        for requirement in package.requires or ():
            required = re.match(r"[\w.-]+", requirement)
            if required and "extra ==" not in requirement:
                with_dependencies(required[0], found)
    return found


def main() -> None:
    """Measures, and prints the result."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("wheel", type=Path)
    arguments.add_argument("--rounds", type=int, default=40)
    given = arguments.parse_args()
    figures: dict[str, dict[str, Any]] = {}
    for name in ("tidegate", *PEERS):
        packages = with_dependencies(name, {})
        figures[name] = {
            "installed, MB": round(size(packages[name]) / 1e6, 2),
            "installed with dependencies, MB": round(sum(map(size, packages.values())) / 1e6, 2),
        }
    wheel = given.wheel.stat().st_size / 1e6
    figures["tidegate"]["wheel, MB"] = round(wheel, 2)
    note(f"wheel: {wheel:.2f} MB")
    least: dict[tuple[str, str], float] = {}
    for _ in range(given.rounds):
        for key, program in PROGRAMS.items():
            least[key] = min(cpu_ms(*program), least.get(key, float("inf")))
    for (what, name), value in least.items():
        figures[name][what] = round(value, 2)
        note(f"{name}: {what}: {value:.1f}")
    ours = figures.pop("tidegate")
    ratio = least[IMPORT, "tidegate"] / least[IMPORT, "httpx2"]
    bars = [bar("wheel, MB", wheel, "<=", 6), bar("import / httpx2's, CPU time", ratio, "<=", 0.3)]
    report("install", ours, figures, bars)


if __name__ == "__main__":
    main()
