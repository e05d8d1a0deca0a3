"""Tests of the gate's clients for both httpx packages."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

import tidegate
from httpx_clients import clients, sent
from httpx_packages import INSTALLED, module
from upstream import Exchange, Upstream, answer

pytestmark = pytest.mark.parametrize("name", INSTALLED)

PACKED = gzip.compress(b'{"a": 1}', mtime=0)


async def packed(exchange: Exchange) -> None:
    await exchange.head(content_type="application/json", content_encoding="gzip", content_length=str(len(PACKED)))
    exchange.writer.write(PACKED)


async def test_encoded_bytes_are_not_changed(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = packed
    async with gate.httpx_async_client(family=name) as http:
        assert (await http.get(upstream.url)).json() == {"a": 1}
        async with http.stream("GET", upstream.url) as response:
            assert b"".join([part async for part in response.aiter_raw()]) == PACKED
    with gate.httpx_client(family=name) as sync:
        assert sync.get(upstream.url).json() == {"a": 1}
        with sync.stream("GET", upstream.url) as response:
            assert b"".join(response.iter_raw()) == PACKED


@pytest.mark.parametrize("mode", ["enforce", "off"])
async def test_transport_of_the_gate_in_a_client_of_the_user(name: str, upstream: Upstream, mode: Any) -> None:
    upstream.handler = answer({"a": 1})
    gate = tidegate.Gate(mode=mode)
    async with module(name).AsyncClient(transport=gate.httpx_async_transport(family=name)) as http:
        assert (await http.get(upstream.url)).json() == {"a": 1}
    with module(name).Client(transport=gate.httpx_transport(family=name)) as sync:
        assert sync.get(upstream.url).json() == {"a": 1}
    through = sum(target["attempts"] for target in gate.snapshot()["targets"].values())
    assert through == (2 if mode == "enforce" else 0)


async def test_client_follows_redirects(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    async def redirect(exchange: Exchange) -> None:
        if exchange.path == "/to":
            await answer({"ok": True})(exchange)
        else:
            await exchange.head(302, location="/to", content_length="0")

    upstream.handler = redirect
    http = gate.httpx_async_client(family=name)
    assert (await http.get(upstream.url)).status_code == 302
    assert (await http.get(upstream.url, follow_redirects=True)).json() == {"ok": True}
    # The request that follows has the stream of the first one, which is no upload.
    assert [(exchange.body, exchange.headers.get("transfer-encoding")) for exchange in upstream.exchanges[1:]] == [
        (b"", None),
        (b"", None),
    ]


async def test_repeated_headers_are_kept(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer({}, x_a="1")
    http = gate.httpx_async_client(family=name)
    response = await http.get(upstream.url, headers=[("x-b", "1"), ("x-c", "ü".encode("latin-1"))])
    assert response.headers["x-a"] == "1"
    assert upstream.exchanges[0].headers["x-c"] == "ü"


async def test_large_bodies_are_complete(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    big = {"text": "x" * 3_000_000}
    upstream.handler = answer(big)
    response = await gate.httpx_async_client(family=name).post(upstream.url, json=big)
    assert response.json() == big
    assert upstream.exchanges[0].json() == big


async def test_malformed_requests_are_errors(name: str, gate: tidegate.Gate) -> None:
    http = gate.httpx_async_client(family=name)
    with pytest.raises(module(name).LocalProtocolError):
        await http.get("http://127.0.0.1/", headers={"x-a": "line\nbreak"})


@pytest.mark.parametrize("extension", ["sni_hostname", "target"])
async def test_unsupported_extension_is_rejected_before_a_slot_is_taken(
    name: str, extension: str, upstream: Upstream, gate: tidegate.Gate
) -> None:
    given = {extension: "/other" if extension == "target" else "llm.test"}
    secure = upstream.url.replace("http:", "https:")
    for _, client in clients(name, gate, "native"):
        with pytest.raises(module(name).LocalProtocolError, match=f'"{extension}".*transport="keep"'):
            await sent(client, "GET", secure, extensions=given)
    assert (upstream.exchanges, gate.snapshot()["targets"]) == ([], {})
    for _, client in clients(name, gate, "keep"):
        await sent(client, "GET", upstream.url, extensions=given)
    assert [exchange.path for exchange in upstream.exchanges] == [given.get("target", "/")] * 2


async def test_server_name_without_tls_is_ignored(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    # Versions of the SDKs name the server for each host with an underscore, such as "my_llm".
    for _, client in clients(name, gate, "native"):
        await sent(client, "GET", upstream.url, extensions={"sni_hostname": "my-llm"})
    assert len(upstream.exchanges) == 2


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "//127.0.0.1/"])
async def test_urls_without_http_raise_the_exception_of_httpx(name: str, url: str, gate: tidegate.Gate) -> None:
    family = module(name)
    with pytest.raises(family.UnsupportedProtocol) as stock:
        family.get(url)
    with pytest.raises(family.UnsupportedProtocol) as ours:
        gate.httpx_client(family=name).get(url)
    with pytest.raises(family.UnsupportedProtocol):
        await gate.httpx_async_client(family=name).get(url)
    assert str(ours.value) == str(stock.value)


async def test_off_mode_bypasses_the_gate(name: str, upstream: Upstream) -> None:
    gate, httpx = tidegate.Gate(mode="off"), module(name)
    with gate.httpx_client(family=name, verify=False) as http:
        assert type(http._transport) is httpx.HTTPTransport
        assert http.timeout.read == 600.0
        assert http.get(upstream.url).status_code == 200
    async with gate.httpx_async_client(family=name) as http:
        assert type(http._transport) is httpx.AsyncHTTPTransport
        assert (await http.get(upstream.url)).status_code == 200
    mock = httpx.MockTransport(lambda _: httpx.Response(204))
    with gate.httpx_client(family=name, transport=mock) as http:
        assert http.get(upstream.url).status_code == 204
    assert (len(upstream.exchanges), gate.snapshot()["targets"]) == (2, {})


async def test_client_arguments_are_passed_on(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer({})
    http: Any = gate.httpx_async_client(family=name, base_url=upstream.url, headers={"x-a": "1"})
    assert isinstance(http, module(name).AsyncClient)
    await http.get("/there")
    assert (upstream.exchanges[0].path, upstream.exchanges[0].headers["x-a"]) == ("/there", "1")


def test_default_timeout_allows_long_generations(name: str, gate: tidegate.Gate) -> None:
    with gate.httpx_client(family=name) as http:
        assert (http.timeout.read, http.timeout.pool) == (600.0, 600.0)
    with gate.httpx_client(family=name, timeout=7) as http:
        assert http.timeout.read == 7
