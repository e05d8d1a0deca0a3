"""What became of each test of a suite, read from JUnit XML (both pytest and jest can write it), and two such runs compared."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Verdict(NamedTuple):
    """One test: `passed`, `failed` or `skipped`, and the first line of why."""

    outcome: str
    why: str


def read(path: Path) -> dict[str, Verdict]:
    """Return each test's verdict by its name. Names that occur twice are numbered."""
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


def total(verdicts: dict[str, Verdict]) -> str:
    """Say how many passed, failed and were skipped."""
    count = Counter(verdict.outcome for verdict in verdicts.values())
    return f"{count['passed']:,} passed, {count['failed']:,} failed, {count['skipped']:,} skipped"


def differences(stock: dict[str, Verdict], ours: dict[str, Verdict]) -> list[str]:
    """Name each test that did not end alike, and say why."""
    gone = Verdict("not run", "")
    lines = []
    for name in sorted(stock.keys() | ours.keys()):
        theirs, our = stock.get(name, gone), ours.get(name, gone)
        if theirs.outcome != our.outcome:
            lines.append(f"{name}\n    stock {theirs.outcome}, ours {our.outcome}: {our.why or theirs.why}")
    return lines
