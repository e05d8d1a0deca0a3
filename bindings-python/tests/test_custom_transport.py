"""Tests of custom transports below the gate: their requests and responses."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import gzip
import json
import threading
import weakref
from typing import Any

import pytest

import tidegate
from custom_transports import BODY, PATH, STREAM, CountingTransports, in_flight, until
from httpx_packages import INSTALLED, module
from provider_payloads import CHAT, CHAT_STREAM
from upstream import Exchange, Upstream, answer, event, events, never, truncate

pytestmark = pytest.mark.parametrize("name", INSTALLED)

QUICK_RETRIES = {"retry": {"attempts": 2, "base": "1ms", "max": "1ms"}}


async def answer_429_first(exchange: Exchange) -> None:
    """Answers the first, third, fifth and so on request with 429, and the others with 200."""
    answer_429_first.count += 1  # type: ignore[attr-defined]
    if answer_429_first.count % 2:  # type: ignore[attr-defined]
        await answer({"error": {"message": "slow down"}}, status=429, retry_after="0")(exchange)
    else:
        await answer(CHAT, x_Mixed_Case="yes")(exchange)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    answer_429_first.count = 0  # type: ignore[attr-defined]


async def test_calls_by_a_custom_transport_are_retried_and_counted(
    name: str, upstream: Upstream, gate: tidegate.Gate
) -> None:
    upstream.handler = answer_429_first
    own = CountingTransports(name)
    async with gate.httpx_async_client(family=name, transport=own.async_transport) as http:
        response = await http.post(upstream.url + PATH, json=BODY)
    assert (response.json(), response.headers["x-mixed-case"]) == (CHAT, "yes")
    assert (response.http_version, response.reason_phrase) == ("HTTP/1.1", "Scripted")
    assert "network_stream" in response.extensions
    assert (len(own.requests), len(upstream.exchanges)) == (2, 2)
    (target,) = gate.snapshot()["targets"].values()
    assert (target["attempts"], target["in_flight"]) == (2, 0)


def test_sync_calls_by_a_custom_transport_are_retried_and_counted(
    name: str, upstream: Upstream, gate: tidegate.Gate
) -> None:
    upstream.handler = answer_429_first
    own = CountingTransports(name)
    with gate.httpx_client(family=name, transport=own.sync_transport) as http:
        response = http.post(upstream.url + PATH, json=BODY)
    assert response.json() == CHAT
    assert (response.http_version, response.reason_phrase) == ("HTTP/1.1", "Scripted")
    assert "network_stream" in response.extensions
    assert (len(own.requests), len(upstream.exchanges)) == (2, 2)
    (target,) = gate.snapshot()["targets"].values()
    assert (target["attempts"], target["in_flight"]) == (2, 0)


async def test_custom_transport_gets_the_clients_request_with_the_changes_of_the_gate(
    name: str, upstream: Upstream, gate: tidegate.Gate
) -> None:
    upstream.handler = events(*CHAT_STREAM)
    own = CountingTransports(name)
    headers = {"X-Mine": "ü".encode("latin-1"), "Accept-Encoding": "gzip"}
    http = gate.httpx_async_client(family=name, transport=own.async_transport, timeout=7, headers=headers)
    traced: list[str] = []

    async def trace(kind: str, _: Any) -> None:
        traced.append(kind)

    async with http:
        response = await http.post(upstream.url + PATH, json=STREAM, extensions={"trace": trace})
    assert response.text.endswith("data: [DONE]\n\n")
    (sent,) = own.requests
    assert type(sent) is module(name).Request
    assert (b"X-Mine", "ü".encode("latin-1")) in sent.headers.raw
    assert sent.headers.get_list("accept-encoding") == ["identity"]
    assert sent.extensions["timeout"] == {"connect": 7, "read": 7, "write": 7, "pool": 7}
    assert any("send_request_headers" in kind for kind in traced)
    assert upstream.exchanges[0].json() == STREAM
    assert http.build_request("GET", upstream.url).headers["accept-encoding"] == "gzip"


async def test_cap_limits_streams_of_a_custom_transport(name: str, upstream: Upstream) -> None:
    gate = tidegate.Gate(defaults={"cap": 2})
    release = upstream.event()

    async def held(exchange: Exchange) -> None:
        await exchange.head(content_type="text/event-stream", transfer_encoding="chunked")
        await exchange.chunk(event(CHAT_STREAM[0]))
        await release.wait()
        for line in CHAT_STREAM[1:]:
            await exchange.chunk(event(line))
        await exchange.chunk(b"")

    upstream.handler = held
    async with gate.httpx_async_client(family=name, transport="keep") as http:
        calls = [asyncio.create_task(http.post(upstream.url + PATH, json=STREAM)) for _ in range(6)]
        await asyncio.to_thread(upstream.wait_for, 2)
        await until(lambda: gate.snapshot()["active"] == 6)
        (target,) = gate.snapshot()["targets"].values()
        assert (target["in_flight"], target["queue_depth"], len(upstream.exchanges)) == (2, 4, 2)
        upstream.call(release.set)
        assert {(await call).status_code for call in calls} == {200}
    (target,) = gate.snapshot()["targets"].values()
    assert (target["peak_in_flight"], target["in_flight"]) == (2, 0)


def test_sync_stream_chunks_arrive_as_they_are_sent(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    """A synchronous caller gets each chunk before its thread waits for the next one."""
    turn = upstream.event()

    async def send_stepwise(exchange: Exchange) -> None:
        await exchange.head(content_type=exchange.headers["x-kind"], transfer_encoding="chunked")
        for line in CHAT_STREAM:
            await exchange.chunk(event(line))
            await turn.wait()
            turn.clear()
        await exchange.chunk(b"")

    upstream.handler = send_stepwise
    for kind in ("text/event-stream", "application/x-ndjson"):
        with (
            gate.httpx_client(family=name, transport="keep") as http,
            http.stream("POST", upstream.url + PATH, json=STREAM, headers={"x-kind": kind}) as response,
        ):
            chunks = response.iter_raw()
            for line in CHAT_STREAM:
                assert next(chunks) == event(line)
                upstream.call(turn.set)
            assert next(chunks, None) is None
    assert in_flight(gate) == 0


async def test_exception_of_a_custom_transport_is_raised_unchanged(name: str, upstream: Upstream) -> None:
    gate, family = tidegate.Gate(defaults=QUICK_RETRIES), module(name)

    class Odd(Exception):
        pass

    # Each exception with its number of attempts. Unsent requests are retried, and unknown
    # failures are not.
    cases = [
        (family.ConnectTimeout("slow"), 2),
        (family.ConnectError("none"), 2),
        (family.PoolTimeout("full"), 2),
        (ConnectionRefusedError("none"), 2),
        (family.ReadTimeout("silent"), 1),
        (family.ReadError("broken"), 1),
        (family.UnsupportedProtocol("gopher"), 1),
        (Odd("mine"), 1),
    ]
    for error, attempts in cases:
        raised: list[BaseException] = []

        def fail(_: Any, error: Exception = error, raised: list[BaseException] = raised) -> Any:
            raised.append(error)
            raise error

        mock = family.MockTransport(fail)
        async with gate.httpx_async_client(family=name, transport=mock) as http:
            with pytest.raises(type(error)) as caught:
                await http.post(upstream.url)
            assert (caught.value is error, len(raised)) == (True, attempts), error
        raised.clear()
        with gate.httpx_client(family=name, transport=mock) as sync:
            with pytest.raises(type(error)) as caught:
                sync.post(upstream.url)
            assert (caught.value is error, len(raised)) == (True, attempts), error
    assert gate.snapshot()["active"] == 0


@pytest.mark.parametrize("fatal", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
async def test_fatal_exception_of_a_custom_transport_is_raised_in_the_caller(
    name: str, fatal: type[BaseException], gate: tidegate.Gate
) -> None:
    family = module(name)

    class Fatal(family.AsyncByteStream, family.SyncByteStream):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Any:
            yield b"{"
            raise fatal

        async def __aiter__(self) -> Any:
            yield b"{"
            raise fatal

    def fail(request: Any) -> Any:
        if request.url.path == "/head":
            raise fatal
        return family.Response(200, stream=Fatal())

    mock = family.MockTransport(fail)
    async with gate.httpx_async_client(family=name, transport=mock) as http:
        for path in ("head", "body"):
            with pytest.raises(fatal):
                await http.post(f"http://127.0.0.1/{path}", headers={"x-stainless-lang": "python"})
    with gate.httpx_client(family=name, transport=mock) as sync:
        for path in ("head", "body"):
            with pytest.raises(fatal):
                sync.post(f"http://127.0.0.1/{path}", headers={"x-stainless-lang": "python"})
    assert gate.snapshot()["active"] == 0


async def test_owned_custom_transport_is_entered_and_exited(name: str, gate: tidegate.Gate) -> None:
    family = module(name)
    events: list[str] = []

    class Recorded(family.MockTransport):  # type: ignore[misc, name-defined]
        def __enter__(self) -> Any:
            events.append("enter")
            return super().__enter__()

        def __exit__(self, *raised: object) -> None:
            super().__exit__(*raised)
            events.append(f"exit {raised[0]}")

        async def __aenter__(self) -> Any:
            return self.__enter__()

        async def __aexit__(self, *raised: object) -> None:
            self.__exit__(*raised)

        def close(self) -> None:
            events.append("close")

    with pytest.raises(ZeroDivisionError), gate.httpx_client(family=name, transport=Recorded(None)):
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        async with gate.httpx_async_client(family=name, transport=Recorded(None)):
            raise ZeroDivisionError
    assert events == ["enter", "close", "exit <class 'ZeroDivisionError'>"] * 2


async def test_truncated_body_raises_the_transports_error(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = truncate(b'{"a": ', 100)
    family = module(name)
    async with gate.httpx_async_client(family=name, transport="keep") as http:
        with pytest.raises(family.RemoteProtocolError) as caught:
            await http.get(upstream.url)
        assert not isinstance(caught.value.__cause__, tidegate.Error), "httpx's own"
    with gate.httpx_client(family=name, transport="keep") as sync, pytest.raises(family.RemoteProtocolError):
        sync.get(upstream.url)

    def short(_: Any) -> Any:
        return family.Response(200, headers={"content-length": "5"}, content=b"abc")

    async with gate.httpx_async_client(family=name, transport=family.MockTransport(short)) as http:
        with pytest.raises(family.RemoteProtocolError, match="content-length"):
            await http.get(upstream.url)
    assert gate.snapshot()["active"] == 0


def test_custom_transport_gets_the_timeouts_of_the_client(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = never
    family = module(name)
    timeout = family.Timeout(30, read=0.05)
    with (
        gate.httpx_client(family=name, transport="keep", timeout=timeout) as http,
        pytest.raises(family.ReadTimeout) as caught,
    ):
        http.post(upstream.url + PATH, json=BODY)
    assert not isinstance(caught.value.__cause__, tidegate.Error)
    assert in_flight(gate) == 0


async def test_deadline_ends_a_call_of_a_custom_transport(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = never
    with tidegate.context(deadline=0.05):
        async with gate.httpx_async_client(family=name, transport="keep") as http:
            assert (await http.post(upstream.url + PATH, json=BODY)).status_code == 504
        with gate.httpx_client(family=name, transport="keep") as sync:
            assert sync.post(upstream.url + PATH, json=BODY).status_code == 504
    await until(lambda: in_flight(gate) == 0)


async def test_upload_by_a_custom_transport_is_sent_once(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    pieces = [b"%d" % n * 1000 for n in range(10)]
    read = []

    async def produced() -> Any:
        for piece in pieces:
            read.append(piece)
            yield piece

    upstream.handler = answer({}, status=503)
    async with gate.httpx_async_client(family=name, transport="keep") as http:
        response = await http.post(upstream.url, content=produced())
    assert (response.status_code, read, len(upstream.exchanges)) == (503, pieces, 1)
    with gate.httpx_client(family=name, transport="keep") as sync:
        assert sync.post(upstream.url, content=iter(pieces)).status_code == 503
        upstream.handler = answer({})
        sync.post(upstream.url, files={"file": b"x" * 1000})
    assert [exchange.body for exchange in upstream.exchanges[:2]] == [b"".join(pieces)] * 2
    assert b"x" * 1000 in upstream.exchanges[2].body


async def test_custom_transport_runs_in_the_callers_context(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    family = module(name)
    seen: list[Any] = []

    async def see(_: Any) -> Any:
        seen.append((variable.get(), asyncio.get_running_loop()))
        return family.Response(200, json={})

    http = gate.httpx_async_client(family=name, transport=family.MockTransport(see))

    async def call(value: str) -> None:
        variable.set(value)
        await http.get(upstream.url)

    await asyncio.gather(*(call(value) for value in "abc"))
    assert sorted(value for value, _ in seen) == ["a", "b", "c"]
    assert {loop for _, loop in seen} == {asyncio.get_running_loop()}

    threads: list[int] = []

    def here(_: Any) -> Any:
        threads.append(threading.get_ident())
        return family.Response(200, json={})

    gate.httpx_client(family=name, transport=family.MockTransport(here)).get(upstream.url)
    assert threads == [threading.get_ident()]


async def test_custom_transport_works_on_several_loops(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CHAT)

    async def work() -> None:
        async with gate.httpx_async_client(family=name, transport="keep") as http:
            answers = await asyncio.gather(*(http.post(upstream.url + PATH, json=BODY) for _ in range(10)))
            assert [one.json() for one in answers] == [CHAT] * 10

    await asyncio.gather(work(), *(asyncio.to_thread(asyncio.run, work()) for _ in range(3)))
    assert in_flight(gate) == 0


async def test_observe_mode_sends_by_a_custom_transport(name: str, upstream: Upstream) -> None:
    gate = tidegate.Gate(mode="observe")
    upstream.handler = answer_429_first
    async with gate.httpx_async_client(family=name, transport="keep") as http:
        answers = [(await http.post(upstream.url + PATH, json=BODY)).status_code for _ in range(2)]
    assert answers == [429, 200], "it repeats nothing"
    (target,) = gate.snapshot()["targets"].values()
    assert (target["attempts"], target["in_flight"]) == (2, 0)


async def test_ended_call_leaves_no_objects_behind(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer_429_first
    async with gate.httpx_async_client(family=name, transport="keep") as http:
        requests = [http.build_request("POST", upstream.url + PATH, json=BODY) for _ in range(4)]
        left = [weakref.ref(request) for request in requests]
        for response in await asyncio.gather(*map(http.send, requests)):
            await response.aread()
        await until(lambda: gate.snapshot()["active"] == 0)
        with gate.httpx_client(family=name, transport="keep") as sync:
            requests = [sync.build_request("POST", upstream.url + PATH, json=BODY)]
            left.append(weakref.ref(requests[0]))
            sync.send(requests[0])
        del requests, response

        def is_collected() -> bool:
            gate.snapshot()  # The native module drops objects that worker threads released.
            gc.collect()
            return all(one() is None for one in left)

        await until(is_collected)


async def test_chunks_of_a_custom_transport_may_be_any_buffers(name: str, gate: tidegate.Gate) -> None:
    family, chunks = module(name), [bytearray(b"ab"), memoryview(b"cd"), b"ef"]

    class Buffers(family.SyncByteStream, family.AsyncByteStream):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Any:
            yield from chunks

        async def __aiter__(self) -> Any:
            for chunk in chunks:
                yield chunk

    mock = family.MockTransport(lambda _: family.Response(200, stream=Buffers()))
    with gate.httpx_client(family=name, transport=mock) as http:
        assert http.get("http://llm/").content == b"abcdef"
    async with gate.httpx_async_client(family=name, transport=mock) as ahttp:
        assert (await ahttp.get("http://llm/")).content == b"abcdef"


def test_response_that_the_transport_has_read_is_passed_on(name: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    async def packed(exchange: Exchange) -> None:
        body = gzip.compress(json.dumps(CHAT).encode())
        length = str(len(body))
        await exchange.head(content_type="application/json", content_encoding="gzip", content_length=length)
        exchange.writer.write(body)

    class Logging(module(name).HTTPTransport):  # type: ignore[misc,name-defined]
        logged: list[str]

        def handle_request(self, request: Any) -> Any:
            response = super().handle_request(request)
            response.read()
            self.logged.append(response.text)
            return response

    upstream.handler = packed
    transport = Logging()
    transport.logged = []
    with gate.httpx_client(family=name, transport=transport) as http:
        assert http.post(upstream.url + PATH, json=BODY).json() == CHAT
    assert [json.loads(text) for text in transport.logged] == [CHAT]


async def test_response_that_the_async_transport_has_read_is_passed_on(
    name: str, upstream: Upstream, gate: tidegate.Gate
) -> None:
    class Logging(module(name).AsyncHTTPTransport):  # type: ignore[misc,name-defined]
        async def handle_async_request(self, request: Any) -> Any:
            response = await super().handle_async_request(request)
            await response.aread()
            return response

    upstream.handler = events(*CHAT_STREAM)
    async with gate.httpx_async_client(family=name, transport=Logging()) as http:
        response = await http.post(upstream.url + PATH, json=BODY)
    assert response.status_code == 200
    assert response.text.count("data:") == len(CHAT_STREAM)
