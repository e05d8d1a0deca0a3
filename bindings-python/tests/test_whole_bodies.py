"""Tests of responses whose body is read at once, because it has arrived completely."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import Any

import pytest

import tidegate
from httpx_clients import clients, of_each_family, sent
from httpx_packages import module
from provider_payloads import MESSAGES
from test_cancel import closed, in_flight, wait_for_requests
from test_transports import PACKED, packed
from upstream import Exchange, Upstream, answer, truncate

pytestmark = of_each_family

# A request for a model, which occupies a slot.
ASK = {"model": "small", "messages": MESSAGES}
PATH = "/v1/chat/completions"
BODY = b'{"a": "\xc3\xbc"}'


async def in_one_write(exchange: Exchange) -> None:
    """Answers with head and body in one segment, so that they arrive together."""
    exchange.writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
    exchange.writer.write(b"content-length: %d\r\n\r\n%s" % (len(BODY), BODY))


@pytest.fixture
def iterated(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns a list to which each use of httpx's own iterators of a body adds their name."""
    family, used = module(name), list[str]()
    for method in ("iter_raw", "aiter_raw"):
        stock = getattr(family.Response, method)

        def recorded(self: Any, *arguments: Any, _stock: Any = stock, _method: str = method) -> Any:
            used.append(_method)
            return _stock(self, *arguments)

        monkeypatch.setattr(family.Response, method, recorded)
    return used


def state(response: Any) -> tuple[Any, ...]:
    """Returns what a caller can see of a response after it was read."""
    assert response.elapsed.total_seconds() > 0
    return (
        response.is_closed,
        response.is_stream_consumed,
        response.num_bytes_downloaded,
        response.content,
        response.encoding,
        response.extensions["http_version"],
        list(response.iter_bytes(3)),
        # `_decoder` belongs to httpx's iterators.
        vars(response).keys() - {"_decoder"},
    )


@pytest.mark.parametrize("handler", [in_one_write, answer(""), answer(["x" * 100_000]), packed])
async def test_read_response_has_the_state_of_a_stock_response(
    name: str, upstream: Upstream, gate: tidegate.Gate, handler: Any
) -> None:
    upstream.handler = handler
    for stock, ours in clients(name, gate, "native"):
        assert state(await sent(ours, "GET", upstream.url)) == state(await sent(stock, "GET", upstream.url))


async def test_arrived_body_is_read_without_iterators(
    name: str, upstream: Upstream, gate: tidegate.Gate, iterated: list[str]
) -> None:
    upstream.handler = in_one_write
    http, calls = gate.httpx_async_client(family=name), 100
    for _ in range(calls):
        assert (await http.post(upstream.url + PATH, json=ASK)).content == BODY
    # The end of a body can arrive after its head has been passed on, but not always.
    assert iterated.count("aiter_raw") < calls
    with gate.httpx_client(family=name) as sync:
        for _ in range(calls):
            assert (await asyncio.to_thread(sync.post, upstream.url + PATH, json=ASK)).content == BODY
    assert iterated.count("iter_raw") < calls
    assert in_flight(gate) == 0


async def test_encoded_body_is_decoded_by_the_iterators(
    name: str, upstream: Upstream, gate: tidegate.Gate, iterated: list[str]
) -> None:
    upstream.handler = packed
    response = await gate.httpx_async_client(family=name).get(upstream.url)
    assert (response.json(), response.num_bytes_downloaded) == ({"a": 1}, len(PACKED))
    assert iterated == ["aiter_raw"]


async def test_nothing_is_read_before_the_caller_reads(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    family, seen = module(name), list[bool]()

    async def hook(response: Any) -> None:
        with pytest.raises(family.ResponseNotRead):
            _ = response.content
        seen.append(response.is_closed)

    upstream.handler = in_one_write
    http = gate.httpx_async_client(family=name, event_hooks={"response": [hook]})
    assert (await http.get(upstream.url)).content == BODY
    async with http.stream("GET", upstream.url) as response:
        assert (response.is_closed, response.is_stream_consumed, response.num_bytes_downloaded) == (False, False, 0)
        assert [part async for part in response.aiter_raw(4)] == [BODY[:4], BODY[4:8], BODY[8:]]
        with pytest.raises(family.StreamConsumed):
            await response.aread()
    async with http.stream("GET", upstream.url) as response:
        await response.aclose()
        with pytest.raises(family.StreamClosed):
            await response.aread()
    with gate.httpx_client(family=name) as sync, sync.stream("GET", upstream.url) as lazy:
        assert b"".join(lazy.iter_raw()) == BODY
        with pytest.raises(family.StreamConsumed):
            lazy.read()
    assert seen == [False] * 3


async def test_replaced_stream_is_read(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    family = module(name)

    class Other(family.AsyncByteStream):  # type: ignore[misc,name-defined]
        async def __aiter__(self) -> Any:
            yield b"other"

    async def hook(response: Any) -> None:
        response.stream = Other()

    upstream.handler = in_one_write
    http = gate.httpx_async_client(family=name, event_hooks={"response": [hook]})
    assert (await http.get(upstream.url)).content == b"other"


async def test_copies_are_plain_responses(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = in_one_write
    response = await gate.httpx_async_client(family=name).get(upstream.url)
    pickled = [pickle.loads(pickle.dumps(response, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for made in (*pickled, copy.copy(response), copy.deepcopy(response)):
        assert (type(made), made.content, made.is_closed) == (module(name).Response, BODY, True)


async def test_class_of_a_response_creates_responses(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = in_one_write
    stream = module(name).ByteStream(b"y")
    with gate.httpx_client(family=name) as sync:
        kind = type(await asyncio.to_thread(sync.get, upstream.url))
    assert (kind(200, content=b"x").content, kind(200, stream=stream).read()) == (b"x", b"y")
    kind = type(await gate.httpx_async_client(family=name).get(upstream.url))
    assert (kind(200, content=b"x").content, await kind(200, stream=stream).aread()) == (b"x", b"y")


async def test_truncated_small_body_raises(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = truncate(b'{"a": 1}', 100)
    error = module(name).RemoteProtocolError
    http = gate.httpx_async_client(family=name)
    async with http.stream("POST", upstream.url + PATH, json=ASK) as response:
        assert response.status_code == 200
        with pytest.raises(error):
            await response.aread()
    with pytest.raises(error):
        await http.post(upstream.url + PATH, json=ASK)
    with gate.httpx_client(family=name) as sync, pytest.raises(error):
        await asyncio.to_thread(sync.post, upstream.url + PATH, json=ASK)
    assert in_flight(gate) == 0


async def test_cancellation_while_the_body_is_pending_releases_the_slot(
    name: str, upstream: Upstream, gate: tidegate.Gate
) -> None:
    async def stall(exchange: Exchange) -> None:
        await exchange.head(content_type="application/json", content_length="100")
        exchange.writer.write(b"{")
        await exchange.gone()

    upstream.handler = stall
    begun = asyncio.Event()

    async def hook(_: Any) -> None:
        begun.set()

    http = gate.httpx_async_client(family=name, event_hooks={"response": [hook]})
    task = asyncio.create_task(http.post(upstream.url + PATH, json=ASK))
    exchange = await wait_for_requests(upstream)
    await begun.wait()
    assert in_flight(gate) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await closed(exchange)
    assert in_flight(gate) == 0


async def test_retried_call_returns_the_whole_body_of_its_last_attempt(name: str, upstream: Upstream) -> None:
    async def second_succeeds(exchange: Exchange) -> None:
        await (answer({}, status=503) if len(upstream.exchanges) == 1 else in_one_write)(exchange)

    upstream.handler = second_succeeds
    gate = tidegate.Gate(defaults={"retry": {"attempts": 2, "base": "1ms", "max": "1ms"}})
    response = await gate.httpx_async_client(family=name).post(upstream.url + PATH, json=ASK)
    assert (response.content, len(upstream.exchanges), in_flight(gate)) == (BODY, 2, 0)
