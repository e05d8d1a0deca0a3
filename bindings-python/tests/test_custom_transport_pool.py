"""Tests that custom transports send to the replicas of a pool."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

import tidegate
from custom_transports import BODY, PATH, CountingTransports
from httpx_packages import INSTALLED
from provider_payloads import CHAT
from upstream import Upstream, answer

pytestmark = pytest.mark.parametrize("name", INSTALLED)

POOL = "http://llama"


@pytest.fixture
def replicas() -> Iterator[list[Upstream]]:
    """Runs two servers that answer chat completions, and yields them."""
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(Upstream()) for _ in range(2)]
        for replica in both:
            replica.handler = answer(CHAT)
        yield both


def pool(replicas: list[Upstream], mode: str = "enforce") -> tidegate.Gate:
    """Returns a gate with a pool of these replicas, without health checks and polls."""
    urls = [replica.url for replica in replicas]
    settings = {"replicas": urls, "health": "none", "poll": "none"}
    return tidegate.Gate(mode=mode, targets={"llama": {"pool": settings}})


def asked(replicas: list[Upstream]) -> list[tuple[Upstream, str]]:
    """Returns, for each call that arrived, the replica that received it and its header `Host`."""
    return [
        (replica, exchange.headers["host"])
        for replica in replicas
        for exchange in replica.exchanges
        if exchange.path == PATH
    ]


@pytest.mark.parametrize("mode", ["enforce", "observe", "off"])
async def test_exchange_goes_to_the_replica(name: str, mode: str, replicas: list[Upstream]) -> None:
    own = CountingTransports(name)
    async with pool(replicas, mode).httpx_async_client(family=name, transport=own.async_transport) as http:
        for _ in range(8):
            response = await http.post(POOL + PATH, json=BODY, headers={"authorization": "Bearer mine"})
            assert response.json() == CHAT
            assert str(response.request.url) == POOL + PATH
    seen = asked(replicas)
    assert len(seen) == len(own.requests) == 8
    for replica, host in seen:
        assert f"http://{host}" == replica.url
    assert {str(request.url) for request in own.requests} <= {replica.url + PATH for replica in replicas}
    assert all(request.headers["authorization"] == "Bearer mine" for request in own.requests)


def test_sync_exchange_goes_to_the_replica(name: str, replicas: list[Upstream]) -> None:
    own = CountingTransports(name)
    with pool(replicas).httpx_client(family=name, transport=own.sync_transport) as http:
        assert http.post(POOL + PATH, json=BODY).json() == CHAT
    ((replica, host),) = asked(replicas)
    assert f"http://{host}" == replica.url


async def test_call_rejected_by_one_replica_is_sent_to_the_other(name: str, replicas: list[Upstream]) -> None:
    replicas[0].handler = answer({"error": {"message": "full"}}, status=503)
    own = CountingTransports(name)
    gate = pool(replicas)
    async with gate.httpx_async_client(family=name, transport=own.async_transport) as http:
        for _ in range(8):
            assert (await http.post(POOL + PATH, json=BODY)).json() == CHAT
    at = [replica for replica, _ in asked(replicas)]
    assert at.count(replicas[1]) == 8
    assert gate.snapshot()["targets"]["llama"]["retries"].get("elsewhere", 0) == at.count(replicas[0])
