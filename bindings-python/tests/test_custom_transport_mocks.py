"""Tests that mock transports, patched pools and proxies of a client still work below a gate."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any

import openai
import pytest
import respx
import trustme
import vcr

import tidegate
from custom_transports import BODY, PATH, CountingTransports
from httpx_packages import INSTALLED, module
from provider_payloads import CHAT, MESSAGES
from test_wrap import httpx_packages_of_openai
from upstream import Exchange, Upstream, answer

LLM = "http://llm.test"


def ask(sdk: Any) -> Any:
    return sdk.chat.completions.create(model="small", messages=MESSAGES)


@pytest.mark.skipif("httpx" not in INSTALLED, reason="respx mocks the legacy httpx")
async def test_respx_mocks_calls_below_the_gate(gate: tidegate.Gate) -> None:
    httpx = module("httpx")
    with respx.mock(base_url=LLM) as mocked:
        busy = httpx.Response(429, headers={"retry-after": "0"})
        route = mocked.post("/chat/completions").mock(side_effect=[busy, httpx.Response(200, json=CHAT)] * 2)
        with httpx.Client() as http:
            sdk = openai.OpenAI(base_url=LLM, api_key="k", http_client=http)
            assert ask(gate.wrap(sdk, transport="keep")).id == "chatcmpl-1"
        async with httpx.AsyncClient() as ahttp:
            asdk = openai.AsyncOpenAI(base_url=LLM, api_key="k", http_client=ahttp)
            assert (await ask(gate.wrap(asdk, transport="keep"))).id == "chatcmpl-1"
    assert route.call_count == 4, "the gate tried again, twice"
    assert route.calls.last.request.headers["authorization"] == "Bearer k"


@pytest.mark.parametrize("name", INSTALLED)
async def test_vcr_records_calls_below_the_gate(
    name: str, upstream: Upstream, gate: tidegate.Gate, tmp_path: Path
) -> None:
    upstream.handler = answer(CHAT)
    recorder = vcr.VCR(record_mode="once", match_on=["method", "path", "body"])
    for _ in ("recorded", "played"):
        with (
            recorder.use_cassette(str(tmp_path / "sync.yaml")),
            gate.httpx_client(family=name, transport="keep") as http,
        ):
            assert http.post(upstream.url + PATH, json=BODY).json() == CHAT
        with recorder.use_cassette(str(tmp_path / "async.yaml")):
            async with gate.httpx_async_client(family=name, transport="keep") as ahttp:
                assert (await ahttp.post(upstream.url + PATH, json=BODY)).json() == CHAT
    assert len(upstream.exchanges) == 2
    (target,) = gate.snapshot()["targets"].values()
    assert target["attempts"] == 4


@pytest.mark.parametrize("name", INSTALLED)
def test_patched_connection_pool_is_used(name: str, gate: tidegate.Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    httpcore = pytest.importorskip(name.replace("httpx", "httpcore"))

    def respond(*_: Any) -> Any:
        return httpcore.Response(200, headers=[(b"content-length", b"2")], content=b"{}")

    monkeypatch.setattr(httpcore.ConnectionPool, "handle_request", respond)
    with gate.httpx_client(family=name, transport="keep") as http:
        assert http.post(LLM + PATH, json=BODY).json() == {}


async def forward(exchange: Exchange) -> None:
    """Acts as an HTTP proxy: sends the request to its host, and passes the answer back."""
    host, port = exchange.headers["host"].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    path = "/" + exchange.path.split("/", 3)[3]
    head = f"{exchange.method} {path} HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-length: {len(exchange.body)}\r\n\r\n"
    writer.write(head.encode() + exchange.body)
    answered = await reader.readuntil(b"\r\n\r\n")
    exchange.writer.write(answered + await reader.readexactly(len(b'{"ok": true}')))
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("name", INSTALLED)
async def test_custom_proxy_is_used(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer({"ok": True})
    with Upstream() as proxy:
        proxy.handler = forward
        with gate.httpx_client(family=name, proxy=proxy.url) as http:
            assert http.post(upstream.url + PATH, json=BODY).json() == {"ok": True}
        async with gate.httpx_async_client(family=name, mounts=mounts(name, proxy.url)) as ahttp:
            assert (await ahttp.post(upstream.url + PATH, json=BODY)).json() == {"ok": True}
        assert [exchange.path for exchange in proxy.exchanges] == [upstream.url + PATH] * 2
    assert len(upstream.exchanges) == 2


def mounts(name: str, proxy: str) -> dict[str, Any]:
    return {"http://": module(name).AsyncHTTPTransport(proxy=proxy)}


@pytest.mark.parametrize("name", httpx_packages_of_openai())
async def test_custom_certificate_is_trusted(name: str, gate: tidegate.Gate) -> None:
    authority = trustme.CA()
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server_context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with Upstream(tls=server_context) as upstream:
        upstream.handler = answer(CHAT)
        url = upstream.url.replace("http:", "https:")
        httpx = module(name)
        with httpx.Client(verify=trusting) as http:
            sdk = openai.OpenAI(base_url=url, api_key="k", http_client=http)
            assert ask(gate.wrap(sdk)).id == "chatcmpl-1"
        async with gate.httpx_async_client(family=name, verify=trusting) as ahttp:
            assert (await ahttp.get(url)).json() == CHAT
        quick = tidegate.Gate(defaults={"retry": {"attempts": 1}})
        async with quick.httpx_async_client(family=name, transport="keep") as ahttp:
            with pytest.raises(httpx.ConnectError, match="(?i)certificate"):
                await ahttp.get(url)


@pytest.mark.parametrize("name", httpx_packages_of_openai())
async def test_hooks_and_auth_of_a_custom_client_are_kept(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT, set_cookie="seen=yes")
    httpx, own = module(name), CountingTransports(name)
    seen: list[Any] = []

    async def before(request: Any) -> None:
        seen.append(request.method)

    async def after(response: Any) -> None:
        seen.append(response.status_code)

    hooks = {"request": [before], "response": [after]}
    async with contextlib.AsyncExitStack() as stack:
        client = httpx.AsyncClient(transport=own.async_transport, event_hooks=hooks, auth=("user", "pass"), timeout=11)
        http = await stack.enter_async_context(client)
        sdk = gate.wrap(openai.AsyncOpenAI(base_url=upstream.url, api_key="k", http_client=http))
        assert (await ask(sdk)).id == "chatcmpl-1"
        assert (seen, sdk.timeout.read, http.cookies["seen"]) == (["POST", 200], 11, "yes")
    assert len(own.requests) == 1
