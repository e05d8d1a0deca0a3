"""Shared parts of the experiments: the scripted upstream, bars, and the result line.

A bar is the limit that a measured figure must keep for the experiment to pass.
"""

from __future__ import annotations

import json
import operator
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGES: Any = [{"role": "user", "content": "x" * 220}]
HOLDS = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}


@contextmanager
def scripted() -> Iterator[str]:
    """Runs a scripted upstream in its own process, and yields its URL."""
    script = Path(__file__).with_name("scripted_upstream.py")
    server = subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.stdin.close()
        server.wait()


def seen(url: str) -> dict[str, Any]:
    """Returns what the upstream at `url` has recorded.

    These are its `requests`, and the peak (`most`) and current (`now`) number of concurrent ones.
    """
    with urllib.request.urlopen(f"{url}/seen", timeout=10) as answer:
        statistics: dict[str, Any] = json.load(answer)
        return statistics


def bar(what: str, value: float, op: str, limit: float) -> dict[str, Any]:
    """Returns the result of comparing a figure with the limit that it must keep.

    `what` describes the figure, and `op` is the required relation of `value` to `limit`: `<=`, `>=`
    or `==`. The key `ok` of the result is whether the relation holds.
    """
    return {"what": what, "value": round(value, 3), "op": op, "bar": limit, "ok": HOLDS[op](value, limit)}


def note(text: str) -> None:
    """Prints `text`, which reports progress, to stderr. Standard output is for the result."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def report(name: str, figures: dict[str, Any], peers: dict[str, Any], bars: list[dict[str, Any]]) -> None:
    """Prints the result of an experiment as one line of JSON.

    `figures` are the measurements of Tidegate, and `peers` those of the clients that it is compared
    with. `bars` has the results of `bar`.
    """
    line = {"name": name, "seeds": [], "figures": figures, "peers": peers, "bars": bars}
    print(json.dumps(line))  # noqa: T201
