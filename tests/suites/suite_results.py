"""The verdicts of a test suite, and the comparison of two runs.

Verdicts are read from pytest's JUnit XML or jest's JSON.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

_JEST = {"passed": "passed", "failed": "failed"}


class Verdict(NamedTuple):
    """The result of one test: `passed`, `failed` or `skipped`, and the first line of the reason.

    `why` is empty if the test passed. A test that only the other run has is `not run`.
    """

    outcome: str
    why: str


def read(path: Path) -> dict[str, Verdict]:
    """Returns the verdicts by test name from a JUnit XML file.

    If a name occurs several times, a number is appended from the second time on.
    """
    verdicts: dict[str, Verdict] = {}
    seen: Counter[str] = Counter()
    for case in ET.parse(path).getroot().iter("testcase"):  # noqa: S314 - a file written a moment ago
        name = f"{case.get('classname')}::{case.get('name')}"
        seen[name] += 1
        if seen[name] > 1:
            name = f"{name} #{seen[name]}"
        verdicts[name] = _verdict(case)
    return verdicts


def _verdict(case: ET.Element) -> Verdict:
    for tag, outcome in (("error", "failed"), ("failure", "failed"), ("skipped", "skipped")):
        found = case.find(tag)
        if found is not None:
            lines = (found.get("message") or found.text or "").strip().splitlines()
            return Verdict(outcome, lines[0] if lines else "")
    return Verdict("passed", "")


def read_json(path: Path, root: Path) -> dict[str, Verdict]:
    """Returns the verdicts by test name from a JSON file of jest or vitest.

    The name starts with the path of the test file, relative to `root`. If a name occurs several
    times, a number is appended from the second time on.
    """
    verdicts: dict[str, Verdict] = {}
    seen: Counter[str] = Counter()
    for file in json.loads(path.read_text())["testResults"]:
        where = Path(file["name"]).relative_to(root)
        for case in file["assertionResults"]:
            name = f"{where}::{case['fullName']}"
            seen[name] += 1
            if seen[name] > 1:
                name = f"{name} #{seen[name]}"
            lines = "\n".join(case.get("failureMessages") or []).strip().splitlines()
            verdicts[name] = Verdict(_JEST.get(case["status"], "skipped"), lines[0] if lines else "")
        if not file["assertionResults"] and file["status"] == "failed":
            verdicts[str(where)] = Verdict("failed", file.get("message", "")[:200])
    return verdicts


def run_logged(command: list[Any], folder: Path, environment: dict[str, str], log: Path) -> int:
    """Runs a command in a folder, with its output in the file `log`. Returns its exit status."""
    with log.open("w") as output:
        return subprocess.run(
            command, cwd=folder, env=environment, stdout=output, stderr=output, check=False
        ).returncode


def print_totals(title: str, verdicts: dict[str, Verdict], count: Path | None) -> None:
    """Prints the number of tests that passed, failed and were skipped.

    Each line of the file `count` is a number of requests through the gate, whose sum is printed
    too. `count` is None for a run without a gate.
    """
    tests = Counter(verdict.outcome for verdict in verdicts.values())
    through = "" if count is None else f"; {sum(map(int, count.read_text().split())):,} requests through the gate"
    print(
        f"{title}: {tests['passed']:,} passed, {tests['failed']:,} failed, {tests['skipped']:,} skipped{through}",
        flush=True,
    )


class Difference(NamedTuple):
    """A test whose outcomes without a gate (`stock`) and with a gate (`ours`) differ."""

    name: str
    stock: Verdict
    ours: Verdict


def differences(stock: dict[str, Verdict], ours: dict[str, Verdict]) -> list[Difference]:
    """Returns each test whose outcomes in the two runs differ, sorted by name.

    `stock` has the verdicts of the run without a gate, and `ours` those of a run with one.
    """
    gone = Verdict("not run", "")
    pairs = ((name, stock.get(name, gone), ours.get(name, gone)) for name in sorted(stock.keys() | ours.keys()))
    return [Difference(*pair) for pair in pairs if pair[1].outcome != pair[2].outcome]


def print_differences(found: list[Difference], reasons: dict[str, str]) -> int:
    """Prints the differences, grouped by their known reasons.

    `reasons` has the known reason for each pattern (regular expression) of test names. Returns the
    number of differences whose test matches no pattern.
    """
    left = list(found)
    for pattern, reason in reasons.items():
        explained = [difference for difference in left if re.search(pattern, difference.name)]
        left = [difference for difference in left if difference not in explained]
        if explained:
            print(f"  {len(explained)} differ: {reason}")
            print(*(f"    {difference.name}" for difference in explained), sep="\n")
    for name, stock, ours in left:
        print(f"  {name}\n    stock {stock.outcome}, ours {ours.outcome}, nobody knows why: {ours.why or stock.why}")
    sys.stdout.flush()
    return len(left)
