"""Tests that the server receives exactly the URL of the caller, unless the call is rejected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tidegate
from custom_transports import in_flight
from httpx_clients import by_each_transport, clients, of_each_family, sent
from httpx_packages import module
from upstream import Upstream, answer
from vectors import Case, every


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    with Upstream() as server:
        yield server


@by_each_transport
@of_each_family
@every("urls")
async def test_url_is_sent_unchanged_or_rejected(case: Case, name: str, transport: Any, server: Upstream) -> None:
    server.handler = answer({})
    bases = {"v1": f"{server.url}/v1", "admin": f"{server.url}/admin", "root": server.url}
    gate = tidegate.Gate(targets={target: {"url": url, "metrics": "off"} for target, url in bases.items()})
    rejected = ("python" if transport == "native" else "python_kept") in case["rejected"]
    for bare, client in clients(name, gate, transport):
        url = server.url + case["url"]
        seen = len(server.exchanges)
        await sent(bare, "POST", url)
        if rejected:
            with pytest.raises(module(name).LocalProtocolError) as raised:
                await sent(client, "POST", url)
            assert server.url not in str(raised.value)
            assert len(server.exchanges) == seen + 1
            assert in_flight(gate) == 0
        else:
            await sent(client, "POST", url)
            expected, path = (exchange.path for exchange in server.exchanges[seen:])
            assert path == expected
            assert gate.calls()[-1]["target"] == case["target"]
            assert gate.target_for(str(module(name).URL(url))) == case["target"]


def test_target_for_rejects_dot_segments_and_backslashes() -> None:
    gate = tidegate.Gate(targets={"v1": {"url": "http://llm/v1"}})
    for path in ["/v1/%2e%2e/admin", "/v1/../admin", "/v1\\..\\admin"]:
        with pytest.raises(tidegate.RequestError, match=r"the URL cannot be sent as it is written: "):
            gate.target_for(f"http://llm{path}?key=secret")
