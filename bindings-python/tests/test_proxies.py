"""Tests that the gate connects to the same address as httpx's own client, as servers see it."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

import openai
import pytest

import tidegate
from httpx_packages import INSTALLED, module
from provider_payloads import CHAT, MESSAGES
from proxies import CASES, Network, environment, network
from test_wrap import httpx_packages_of_openai
from upstream import WAIT, Upstream, answer
from vectors import every

__all__ = ["network"]

# Created once, because reading the certificates for each proxy takes most of the time.
TLS = ssl.create_default_context()
ERROR = "error"
# Failed connections are not retried.
ONCE: dict[str, Any] = {"defaults": {"retry": {"attempts": 1}}}

Decisions = dict[str, str] | str


def decisions(network: Network, name: str, case: dict[str, Any], make: Callable[[], Any]) -> Decisions:
    """Creates a client with `make`, and returns where it connects for each URL of the case.

    See `Network.connection_of` for the values. Returns `error` if `make` raises an exception.
    During the function, the environment has the proxy variables of the case. `name` is the package
    of the client.
    """
    failures = (module(name).TransportError, OSError)
    with environment({key: network.fill(value) for key, value in case["env"].items()}):
        try:
            client = make()
        except (ValueError, module(name).InvalidURL):
            return ERROR
        with client:
            urls = case.get("urls", {"http://127.0.0.1:{port}/": ""})
            return {url: network.connection_of(client.get, network.fill(url), failures) for url in urls}


def test_table_has_at_least_forty_environments() -> None:
    assert len(CASES) >= 60


# httpcore leaves the socket open if a SOCKS proxy rejects the request.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", INSTALLED)
@every("proxies")
def test_gate_connects_to_the_same_address_as_httpx(case: dict[str, Any], name: str, network: Network) -> None:
    httpx = module(name)
    own = decisions(network, name, case, lambda: httpx.Client(verify=TLS))
    ours = decisions(network, name, case, lambda: tidegate.Gate(**ONCE).httpx_client(family=name))
    if difference := case.get("differs", {}).get("python"):
        assert difference["reason"]
        assert ours == difference["decision"] != own
    else:
        assert ours == own


@pytest.mark.parametrize("name", INSTALLED)
async def test_async_client_uses_the_same_proxy(name: str, network: Network) -> None:
    with environment({"HTTP_PROXY": f"http://{network.a.address}", "NO_PROXY": "localhost:1"}):
        client = tidegate.Gate(**ONCE).httpx_async_client(family=name)
    network.seen.clear()
    async with client:
        assert (await client.get(f"http://localhost:{network.origin.port}/")).status_code == 200
    assert network.seen == ["a"]
    # The absolute form, as proxies need it.
    assert network.a.heads[-1].startswith(f"GET http://localhost:{network.origin.port}/ HTTP/1.1\r\n")


@pytest.mark.parametrize("name", httpx_packages_of_openai())
def test_wrapped_client_keeps_proxies_of_its_creation(name: str, network: Network) -> None:
    httpx = module(name)
    proxied, other = f"http://{network.a.address}", f"http://{network.b.address}"
    same: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({"HTTP_PROXY": proxied}, {}),
        ({"HTTP_PROXY": proxied.replace("//", "//user:secret@"), "NO_PROXY": "x.example"}, {}),
        ({"ALL_PROXY": proxied}, {"proxy": proxied}),
    ]
    changed: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({"HTTP_PROXY": other}, {}),
        ({"HTTP_PROXY": proxied, "NO_PROXY": "127.0.0.1"}, {}),
        ({"HTTP_PROXY": proxied.replace("//", "//user:secret@")}, {}),
        ({"HTTP_PROXY": proxied, "NO_PROXY": "*"}, {}),
        ({"HTTP_PROXY": "gopher://127.0.0.1"}, {}),
        ({}, {}),
        ({"ALL_PROXY": other}, {"proxy": proxied}),
        ({"HTTP_PROXY": other}, {"mounts": {"http://": httpx.HTTPTransport(proxy=proxied)}}),
    ]
    with environment({}):
        gate = tidegate.Gate(**ONCE)
    for expected, cases in (("native", same), ("kept", changed)):
        for now, arguments in cases:
            then = now if expected == "native" else {"HTTP_PROXY": proxied}
            with environment(then):
                http = httpx.Client(**arguments)
            with environment(now):
                sdk = openai.OpenAI(base_url="http://127.0.0.1:2/v1", api_key="k", http_client=http)
                wrapped = gate.wrap(sdk)
            way = "native" if wrapped._client._transport.custom is None else "kept"
            assert way == expected, (now, arguments)
            network.seen.clear()
            with contextlib.suppress(httpx.TransportError):
                wrapped._client.get("http://127.0.0.1:2/")
            assert [one.split(" ")[0] for one in network.seen] == ["a"], (now, arguments)
            http.close()


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("name", httpx_packages_of_openai())
async def test_wrapping_again_keeps_the_proxies(name: str, asynchronous: bool, network: Network) -> None:
    url = f"http://127.0.0.1:{network.origin.port}/"
    proxied = {"HTTP_PROXY": f"http://{network.a.address}"}
    other = {"HTTP_PROXY": f"http://{network.b.address}"}
    direct = {"transport": {"proxy_from_env": False}}
    cases: list[tuple[dict[str, str], dict[str, Any], dict[str, str], dict[str, Any], str]] = [
        # Environment and settings of the first gate, environment of the second, client, expected route.
        (proxied, {}, other, {}, "a"),
        (proxied, {}, {}, {}, "a"),
        ({}, {}, proxied, {"trust_env": False}, "direct"),
        (proxied, direct, other, {}, "b"),
        ({}, direct, proxied, {"trust_env": False}, "direct"),
    ]
    for then, settings, now, arguments, expected in cases:
        with environment(then):
            gate = tidegate.Gate(**settings, **ONCE)
            make = gate.httpx_async_client if asynchronous else gate.httpx_client
            http = make(family=name, **arguments)
        with environment(now):
            sdk: Any = openai.AsyncOpenAI if asynchronous else openai.OpenAI
            again = tidegate.Gate(**ONCE).wrap(sdk(base_url=url, api_key="k", http_client=http))._client
        network.seen.clear()
        response = await again.get(url) if asynchronous else again.get(url)
        assert response.status_code == 200
        assert network.seen == [expected], (then, settings, now, arguments)


@pytest.mark.parametrize("port", ["65536", "99999", "-1", "9" * 30])
@pytest.mark.parametrize("name", INSTALLED)
def test_no_proxy_entry_with_an_impossible_port_is_ignored(name: str, port: str, network: Network) -> None:
    host = "127.0.0.1"
    with environment({"HTTP_PROXY": f"http://{network.a.address}", "NO_PROXY": f"{host}:{port}"}):
        http = tidegate.Gate(**ONCE).httpx_client(family=name)
        own = module(name).Client(verify=TLS)
    for client in (own, http):
        network.seen.clear()
        client.get(f"http://{host}:{network.origin.port}/")
        assert network.seen == ["a"]


def test_unusable_proxy_is_an_error_that_names_only_the_variable(network: Network) -> None:
    with environment({"HTTPS_PROXY": "gopher://user:sesame@127.0.0.1"}):
        with pytest.raises(tidegate.ConfigError, match="HTTPS_PROXY.*proxy_from_env = false") as error:
            tidegate.Gate()
        assert not {"user", "sesame", "gopher"} & set(str(error.value).replace(":", " ").split())
        assert error.value.__context__ is None
        direct = tidegate.Gate(transport={"proxy_from_env": False}, **ONCE).httpx_client()
    network.seen.clear()
    assert direct.get(f"http://127.0.0.1:{network.origin.port}/").status_code == 200
    assert network.seen == ["direct"]


@pytest.mark.parametrize(("name", "exception"), [("httpx", "[::1]"), ("httpx2", "xn--a")])
def test_no_proxy_entry_that_httpx_rejects_is_a_config_error(name: Any, exception: str) -> None:
    if name not in INSTALLED:
        pytest.skip("not installed")
    with environment({"HTTP_PROXY": "http://127.0.0.1:2"}):
        gate = tidegate.Gate()
    with (
        environment({"NO_PROXY": exception}),
        pytest.raises(tidegate.ConfigError, match=f"NO_PROXY has an entry that {name} rejects"),
    ):
        gate.httpx_client(family=name)


@pytest.mark.parametrize(("exception", "expected"), [("127.0.0.1", "direct"), ("llama.test", "a")])
def test_proxy_is_chosen_for_the_replica(exception: str, expected: str) -> None:
    # Separate servers, because probes of the pool arrive at any time.
    with contextlib.closing(Network()) as network:
        pool = {"replicas": [f"http://127.0.0.1:{network.origin.port}"]}
        targets = {"llama": {"url": "http://llama.test", "pool": pool, "retry": {"attempts": 1}}}
        with environment({"HTTP_PROXY": f"http://{network.a.address}", "NO_PROXY": exception}):
            gate = tidegate.Gate(targets)
            with gate.httpx_client() as http:
                http.post("http://llama.test/v1/chat/completions", json={"model": "m", "messages": MESSAGES})
        gate.drain(0)
    assert set(network.seen) == {expected}


@pytest.mark.parametrize("name", INSTALLED)
def test_socks_proxy_carries_the_call_and_resolves_the_name(name: str, upstream: Upstream) -> None:
    upstream.handler = answer(CHAT, connection="close")
    with socks_proxy(upstream) as (address, asked):
        with environment({"ALL_PROXY": f"socks5://{address}"}):
            http = tidegate.Gate(**ONCE).httpx_client(family=name)
        response = http.post("http://upstream.test/v1/chat/completions", json={"model": "m", "messages": MESSAGES})
    assert response.json()["id"] == "chatcmpl-1"
    assert asked == ["upstream.test"]


@contextlib.contextmanager
def socks_proxy(upstream: Upstream) -> Any:
    """Runs a SOCKS5 proxy that serves one connection and forwards it to the upstream.

    Yields the address of the proxy, and the list of the host names that the client requests.
    """
    listener, asked = socket.create_server(("127.0.0.1", 0)), list[str]()
    port = int(upstream.url.rpartition(":")[2])

    def serve() -> None:
        client, _ = listener.accept()
        with client, socket.create_connection(("127.0.0.1", port)) as server:
            client.settimeout(WAIT)
            with client.makefile("rb") as reader:
                reader.read(reader.read(2)[1])
                client.sendall(b"\x05\x00")
                kind, length = reader.read(5)[3:]
                assert kind == 3  # The client sends a name, not an address.
                asked.append(reader.read(length).decode())
                reader.read(2)
            client.sendall(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
            back = threading.Thread(target=pump, args=(server, client))
            back.start()
            pump(client, server)
            back.join(WAIT)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}", asked
    thread.join(WAIT)
    listener.close()


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Copies data from `source` to `sink` until `source` ends."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
