"""The vectors that every language runs: `tests/vectors/*.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tidegate
from httpx_packages import INSTALLED
from upstream import Exchange, Handler, Upstream

FOLDER = Path(__file__).parents[2] / "tests" / "vectors"
# What the files of tests run between them; `test_every_file_is_run` compares it with the folder.
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
    """Make one test of each case of a file."""
    assert name in RUN
    cases = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["cases"]
    assert cases
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


def body(value: Any) -> bytes:
    """Return a body: text as it is, or JSON for short."""
    if value is None:
        return b""
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def http(gate: tidegate.Gate) -> Any:
    """Return a synchronous client under the gate, of the preferred family."""
    return gate.httpx_client(family=INSTALLED[-1])


def only_target(gate: tidegate.Gate) -> dict[str, Any]:
    """Return the snapshot of the one target that was called."""
    (target,) = gate.snapshot()["targets"].values()
    return dict(target)


def pieces(*chunks: bytes, **headers: str) -> Handler:
    """Answer with a body that comes in these chunks."""

    async def handler(exchange: Exchange) -> None:
        await exchange.head(transfer_encoding="chunked", **headers)
        for chunk in filter(None, chunks):
            await exchange.chunk(chunk)
        await exchange.chunk(b"")

    return handler


def splits(data: bytes, most: int) -> list[list[bytes]]:
    """Cut the body once, at every byte or else at `most` of them, and, if it is short, into bytes."""
    cuts = range(0, len(data) + 1, max(1, len(data) // most))
    ways = [[data[:cut], data[cut:]] for cut in cuts]
    if len(data) <= 2 * most:
        ways.append([data[at : at + 1] for at in range(len(data))])
    return ways


def since(upstream: Upstream) -> Any:
    """Return a function that says how many requests came since now."""
    before = len(upstream.exchanges)
    return lambda: len(upstream.exchanges) - before
