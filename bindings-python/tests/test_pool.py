"""Tests of the official client with a pool of replicas."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

import tidegate
from provider_payloads import CHAT, CHAT_STREAM, MESSAGES
from tidegate import snapshot as declared
from upstream import Exchange, Handler, Upstream, answer, events

METRICS = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
SETTINGS: dict[str, Any] = {"slow_start": "none", "poll": "50ms"}


def replica(name: str, chat: Handler, health: int = 200) -> Handler:
    """Returns a handler that answers as a model server with the model `name` does.

    `chat` answers calls of the model. `health` is the HTTP status that answers health checks.
    """

    async def handler(exchange: Exchange) -> None:
        if exchange.path == "/health":
            await answer({}, status=health)(exchange)
        elif exchange.path == "/metrics":
            await exchange.head(content_type="text/plain", content_length=str(len(METRICS)))
            exchange.writer.write(METRICS.encode())
        elif exchange.path == "/v1/models":
            await answer({"object": "list", "data": [{"id": name, "max_model_len": 4096}]})(exchange)
        else:
            await chat(exchange)

    return handler


@pytest.fixture
def servers() -> Iterator[list[Upstream]]:
    """Runs three servers that answer as model servers with the model `small`, and yields them."""
    with ExitStack() as stack:
        running = [stack.enter_context(Upstream()) for _ in range(3)]
        for server in running:
            server.handler = replica("small", answer(CHAT))
        yield running


def calls(server: Upstream) -> list[Exchange]:
    return [exchange for exchange in server.exchanges if exchange.path == "/v1/chat/completions"]


def client(gate: tidegate.Gate) -> openai.AsyncOpenAI:
    return gate.wrap(openai.AsyncOpenAI(base_url="http://llama/v1", api_key="sk-caller"))


async def ask(sdk: openai.AsyncOpenAI, session: str | None = None, messages: Any = MESSAGES, **options: Any) -> Any:
    headers = {} if session is None else {"x-session-id": session}
    return await sdk.chat.completions.create(model="small", messages=messages, extra_headers=headers, **options)


def replicas(gate: tidegate.Gate) -> dict[str, declared.ReplicaSnapshot]:
    return {replica["url"]: replica for replica in gate.snapshot()["targets"]["llama"]["replicas"]}


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def test_calls_go_to_all_replicas(servers: list[Upstream]) -> None:
    urls = [f"{server.url}/v1" for server in servers]
    gate = tidegate.Gate({"llama": {"pool": {"replicas": urls, **SETTINGS}}})
    sdk = client(gate)
    await asyncio.gather(*(ask(sdk) for _ in range(30)))
    assert all(calls(server) for server in servers)
    assert sum(len(calls(server)) for server in servers) == 30
    arrived = calls(servers[0])[0]
    assert arrived.headers["host"] == servers[0].url.removeprefix("http://")
    assert arrived.headers["authorization"] == "Bearer sk-caller"

    # Health checks send no key.
    await until(lambda: all(replica["models"] == ["small"] for replica in replicas(gate).values()))
    for server in servers:
        assert all("authorization" not in exchange.headers for exchange in server.exchanges if exchange.method == "GET")
    assert set(replicas(gate)) == {server.url for server in servers}
    text = gate.prometheus()
    assert f'tidegate_replica_in_choice{{replica="{servers[0].url}",target="llama"}} 1' in text
    # Requests without a model go to one of the replicas too.
    assert [model.id for model in (await sdk.models.list()).data] == ["small"]


async def test_calls_of_a_session_go_to_one_replica(servers: list[Upstream]) -> None:
    # Long enough that no replica is suspected on a slow machine.
    pool = {"replicas": [server.url for server in servers], "health": "none", "poll": "none"}
    gate = tidegate.Gate({"llama": {"pool": pool}})
    sdk = client(gate)
    long: Any = [{"role": "user", "content": "what a session has in common " * 200}]
    # Until all replicas have listed their models, those that have are preferred.
    await ask(sdk)
    await until(lambda: all(replica["models"] == ["small"] for replica in replicas(gate).values()))
    before = [len(calls(server)) for server in servers]
    for _ in range(10):
        await ask(sdk, session="mine", messages=long)
    assert sorted(len(calls(server)) - some for server, some in zip(servers, before, strict=True)) == [0, 0, 10]


async def test_a_stream_comes_from_one_replica(servers: list[Upstream]) -> None:
    for server in servers:
        server.handler = replica("small", events(*CHAT_STREAM))
    gate = tidegate.Gate({"llama": {"pool": [server.url for server in servers]}})
    stream = await ask(client(gate), stream=True)
    assert [chunk.choices[0].delta.content async for chunk in stream] == ["hel", "lo", None]
    assert sum(len(calls(server)) for server in servers) == 1


async def test_full_or_stopped_replicas_are_skipped(servers: list[Upstream]) -> None:
    full, good, _ = servers
    full.handler = replica("small", answer({"error": {"message": "full", "code": 503}}, status=503))
    with socket.create_server(("127.0.0.1", 0)) as unheard:
        nowhere = f"http://127.0.0.1:{unheard.getsockname()[1]}"
    pool = {"replicas": [full.url, nowhere, good.url], **SETTINGS}
    gate = tidegate.Gate({"llama": {"pool": pool, "retry": {"ratio": 0, "reserve": 0}}})
    sdk = client(gate)
    for _ in range(20):
        assert (await ask(sdk)).choices[0].message.content == "hi"
    assert len(calls(good)) == 20
    # Without any earlier answer, the failure may be in the network or in the replica.
    await until(lambda: replicas(gate)[nowhere]["state"] in ("suspect", "down"))


async def test_client_timeout_ends_the_wait_for_a_pool_that_is_down() -> None:
    gate = tidegate.Gate({"llama": {"pool": ["http://127.0.0.1:9"]}})
    with pytest.raises(openai.APITimeoutError) as late:
        await ask(client(gate), timeout=0.2)
    error = late.value.__cause__.__cause__  # type: ignore[union-attr]
    assert isinstance(error, tidegate.Refused)
    assert (error.reason, error.status) == ("client_timeout", 504)
    assert "no replica accepts calls (http://127.0.0.1:9: connections are refused)" in str(error)
    (replica,) = replicas(gate).values()
    assert (replica["state"], replica["problem"]) == ("down", "connections are refused")


async def test_first_calls_reach_the_replica_that_serves_the_model(servers: list[Upstream]) -> None:
    missing = {"message": "The model `small` does not exist.", "type": "NotFoundError", "param": "model", "code": 404}
    for server in servers[:2]:
        server.handler = replica("large", answer({"error": missing}, status=404))
    gate = tidegate.Gate({"llama": {"pool": [server.url for server in servers]}})
    sdk = client(gate)
    await asyncio.gather(*(ask(sdk) for _ in range(10)))
    servers[2].handler = replica("small", answer({"error": missing}, status=404))
    with pytest.raises(openai.NotFoundError):
        await sdk.chat.completions.create(model="other", messages=MESSAGES)


async def test_replicas_can_change_while_calls_are_in_flight(servers: list[Upstream]) -> None:
    gate = tidegate.Gate({"llama": {"pool": {}, "deadline": 60}, "openai": 8})
    sdk = client(gate)
    waits = asyncio.ensure_future(ask(sdk))
    await until(lambda: gate.snapshot()["targets"]["llama"]["queue_depth"] == 1)
    gate.set_replicas("llama", [servers[0].url])
    await waits
    gate.set_replicas("llama", (url for url in [servers[1].url]))
    await ask(sdk)
    gate.set_replicas("llama", [{"url": servers[2].url, "weight": 2, "models": ["small"]}])
    await ask(sdk)
    assert [len(calls(server)) for server in servers] == [1, 1, 1]
    (last,) = replicas(gate).values()
    assert (last["url"], last["weight"], last["models"]) == (servers[2].url, 2, ["small"])

    with pytest.raises(tidegate.UnknownNameError, match='did you mean "llama"'):
        gate.set_replicas("lama", [])
    with pytest.raises(tidegate.ConfigError, match="it is not a pool"):
        gate.set_replicas("openai", [servers[0].url])
    with pytest.raises(
        tidegate.ConfigError, match=r"replicas\[0\]\.wieght: unknown key; did you mean .weight."
    ) as wrong:
        gate.set_replicas("llama", [{"url": servers[0].url, "wieght": 2}])  # type: ignore[typeddict-unknown-key]
    assert wrong.value.target == "llama"
    for one in (servers[0].url, {"url": servers[0].url}):
        with pytest.raises(TypeError, match="pass a list"):
            gate.set_replicas("llama", one)
    assert list(replicas(gate)) == [servers[2].url]


async def test_records_and_slots_name_the_replica(servers: list[Upstream]) -> None:
    gate = tidegate.Gate({"llama": {"pool": [servers[0].url]}, "openai": 8})
    await ask(client(gate))
    assert [attempt["replica"] for attempt in gate.calls()[-1]["attempts"]] == [servers[0].url]
    async with gate.slot("llama") as slot:
        assert slot.replica == servers[0].url
    async with gate.slot("openai") as slot:
        assert slot.replica is None


async def test_changes_of_the_replica_file_apply(servers: list[Upstream], tmp_path: Path) -> None:
    path = tmp_path / "replicas.toml"
    path.write_text(f'replicas = ["{servers[0].url}"]\n')
    gate = tidegate.Gate({"llama": {"pool": {"file": str(path), "file_every": "100ms"}}})
    sdk = client(gate)
    await ask(sdk)
    new = tmp_path / "new"
    new.write_text(f"{servers[1].url}\n")
    new.rename(path)
    await until(lambda: list(replicas(gate)) == [servers[1].url])
    await ask(sdk)
    assert [len(calls(server)) for server in servers] == [1, 1, 0]
    path.write_text("replicas = nonsense")
    await until(lambda: gate.snapshot()["targets"]["llama"]["replicas_problem"])
    assert list(replicas(gate)) == [servers[1].url]


async def test_each_address_of_a_dns_name_is_a_replica(servers: list[Upstream]) -> None:
    port = servers[0].url.rpartition(":")[2]
    gate = tidegate.Gate({"llama": {"pool": {"dns": f"http://localhost:{port}"}}})
    await ask(client(gate))
    assert list(replicas(gate)) == [servers[0].url]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forked_child_keeps_the_set_replicas(servers: list[Upstream]) -> None:
    gate = tidegate.Gate({"llama": {"pool": {}}})
    gate.set_replicas("llama", [servers[0].url])
    child = os.fork()
    if child == 0:
        known = [replica["url"] for replica in gate.snapshot()["targets"]["llama"]["replicas"]]
        os._exit(0 if known == [servers[0].url] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


async def test_type_declares_exactly_the_keys_of_a_replica(servers: list[Upstream]) -> None:
    gate = tidegate.Gate({"llama": {"pool": [servers[0].url], "kv_tokens": 10_000}})
    (replica,) = replicas(gate).values()
    assert sorted(replica) == sorted(declared.ReplicaSnapshot.__annotations__)
    assert replica["kv"] is not None
    assert sorted(replica["kv"]) == sorted(declared.KvSnapshot.__annotations__)
