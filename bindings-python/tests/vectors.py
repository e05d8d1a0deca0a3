"""The test vectors that all languages share: `tests/vectors/*.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tidegate
from httpx_packages import INSTALLED
from upstream import Exchange, Handler, Upstream

FOLDER = Path(__file__).parents[2] / "tests" / "vectors"
# Files that the test modules run. `test_every_file_is_run` compares them with the directory.
RUN = {
    "backoff",
    "classify",
    "config_errors",
    "errors",
    "estimate",
    "fallback",
    "limits",
    "proxies",
    "request_facts",
    "retry_after",
    "sse",
    "streams",
    "target_matching",
    "urls",
}

Case = dict[str, Any]


def every(name: str) -> pytest.MarkDecorator:
    """Creates one test for each case of a file."""
    assert name in RUN
    cases = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["cases"]
    assert cases
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


def body(value: Any) -> bytes:
    """Returns the body of a case, which is a text or JSON."""
    if value is None:
        return b""
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def http(gate: tidegate.Gate) -> Any:
    """Returns a synchronous client of the default package that sends through the gate."""
    return gate.httpx_client(family=INSTALLED[-1])


def only_target(gate: tidegate.Gate) -> dict[str, Any]:
    """Returns the snapshot of the only target that was called."""
    (target,) = gate.snapshot()["targets"].values()
    return dict(target)


def pieces(*chunks: bytes, **headers: str) -> Handler:
    """Answers with a body in these chunks."""

    async def handler(exchange: Exchange) -> None:
        await exchange.head(transfer_encoding="chunked", **headers)
        for chunk in filter(None, chunks):
            await exchange.chunk(chunk)
        await exchange.chunk(b"")

    return handler


def splits(data: bytes, most: int) -> list[list[bytes]]:
    """Yields the body cut in two at each of `most` places, and cut into single bytes if short."""
    cuts = range(0, len(data) + 1, max(1, len(data) // most))
    ways = [[data[:cut], data[cut:]] for cut in cuts]
    if len(data) <= 2 * most:
        ways.append([data[at : at + 1] for at in range(len(data))])
    return ways


def since(upstream: Upstream) -> Any:
    """Returns a function that returns the number of requests since this call."""
    before = len(upstream.exchanges)
    return lambda: len(upstream.exchanges) - before
