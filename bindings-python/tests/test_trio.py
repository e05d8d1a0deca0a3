"""Tests of clients under trio, in each mode and with each transport."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import signal
import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

import tidegate
from custom_transports import BODY, PATH, in_flight
from httpx_packages import INSTALLED, module
from provider_payloads import CHAT
from tidegate import _event_loop, _native
from upstream import WAIT, Exchange, Upstream, answer, never

trio = pytest.importorskip("trio")

from trio_clients import KINDS, MODES, TRANSPORTS, Client, arrived, cancelled, ended, run, until  # noqa: E402

# httpx and openai leave generators of a stream that was not read to its end to the garbage
# collector, about which trio warns.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <async_generator object:pytest.PytestUnraisableExceptionWarning"
)

FAST = {"attempts": 2, "base": "1ms", "max": "1ms"}

every_client = pytest.mark.parametrize("kind", KINDS)
every_transport = pytest.mark.parametrize("transport", TRANSPORTS)
every_mode = pytest.mark.parametrize("mode", MODES)


def gate_in(mode: Any, **defaults: Any) -> tidegate.Gate:
    return tidegate.Gate(mode=mode, defaults=defaults)


@every_client
@every_transport
@every_mode
def test_call_and_stream_complete_in_each_of_three_runs(
    mode: str, transport: str, kind: str, upstream: Upstream
) -> None:
    gate = gate_in(mode)

    async def main() -> None:
        async with Client(kind, gate, transport, upstream.url) as client:
            upstream.handler = client.answer()
            assert await client.ask() == client.payload["id"]
            upstream.handler = client.answer_stream()
            assert await client.read_stream() >= 3
        await until(lambda: in_flight(gate) == 0)

    for _ in range(3):
        run(main)
    assert [call["outcome"] for call in gate.calls()] == ["completed"] * 6


@pytest.mark.parametrize("kind", KINDS)
def test_one_client_serves_consecutive_runs(kind: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    client = Client(kind, gate, "native", upstream.url)
    upstream.handler = client.answer()
    for _ in range(3):
        assert run(client.ask) == client.payload["id"]


@every_client
@every_transport
@every_mode
def test_cancelled_call_ends_its_exchange(mode: str, transport: str, kind: str, upstream: Upstream) -> None:
    gate = gate_in(mode)
    upstream.handler = never

    async def main() -> None:
        async with Client(kind, gate, transport, upstream.url) as client:
            async with cancelled(client.ask):
                exchange = await arrived(upstream)
            await ended(gate, exchange)

    run(main)
    assert len(upstream.exchanges) == 1


@every_client
@every_transport
@every_mode
def test_cancelled_stream_ends_its_exchange(mode: str, transport: str, kind: str, upstream: Upstream) -> None:
    gate = gate_in(mode)

    async def main() -> None:
        async with Client(kind, gate, transport, upstream.url) as client:
            upstream.handler = client.stall()
            with trio.CancelScope() as scope:
                await client.read_stream(scope.cancel)
            assert scope.cancelled_caught
            await ended(gate, upstream.exchanges[0])

    run(main)


@every_client
@every_transport
@every_mode
def test_fail_after_ends_the_exchange(mode: str, transport: str, kind: str, upstream: Upstream) -> None:
    gate = gate_in(mode)

    async def main() -> None:
        async with Client(kind, gate, transport, upstream.url) as client:
            upstream.handler = client.stall()
            with pytest.raises(trio.TooSlowError), trio.fail_after(WAIT) as scope:
                # The deadline passes while the rest of the stream is awaited.
                await client.read_stream(lambda: setattr(scope, "deadline", trio.current_time()))
            await ended(gate, upstream.exchanges[0])

    run(main)


@every_client
@every_transport
@every_mode
def test_timeout_of_the_client_raises_its_exception(mode: str, transport: str, kind: str, upstream: Upstream) -> None:
    gate = gate_in(mode, retry={"attempts": 1})
    upstream.handler = never

    async def main() -> None:
        async with Client(kind, gate, transport, upstream.url, read=0.05) as client:
            with pytest.raises(client.timeout_error()):
                await client.ask()
            for exchange in upstream.exchanges:
                await ended(gate, exchange)

    run(main)


@every_client
@every_transport
@every_mode
def test_rejected_call_is_repeated(mode: str, transport: str, kind: str, upstream: Upstream) -> None:
    gate = gate_in(mode, retry=FAST)

    async def main() -> None:
        async with Client(kind, gate, transport, upstream.url) as client:

            async def busy_once(exchange: Exchange) -> None:
                first = len(upstream.exchanges) == 1
                again = answer({}, status=429, retry_after_ms="1")
                await (again if first else client.answer())(exchange)

            upstream.handler = busy_once
            if mode == "observe" and kind in INSTALLED:
                # Nothing retries: the gate only measures, and httpx does not retry.
                with pytest.raises(module(kind).HTTPStatusError):
                    await client.ask()
            else:
                assert await client.ask() == client.payload["id"]

    run(main)
    assert len(upstream.exchanges) == (1 if mode == "observe" and kind in INSTALLED else 2)


@every_client
@every_transport
def test_nursery_keeps_the_cap(transport: str, kind: str, upstream: Upstream) -> None:
    gate = gate_in("enforce", cap=2)
    active: list[int] = []

    async def main() -> None:
        async with Client(kind, gate, transport, upstream.url) as client:

            async def count(exchange: Exchange) -> None:
                active.append(in_flight(gate))
                await client.answer()(exchange)

            upstream.handler = count
            async with trio.open_nursery() as nursery:
                for _ in range(30):
                    nursery.start_soon(client.ask)

    run(main)
    assert len(active) == 30
    assert max(active) == 2


@every_transport
def test_cancelled_wait_leaves_the_queue(transport: str, upstream: Upstream) -> None:
    gate = gate_in("enforce", cap=1)
    upstream.handler = never

    def depth() -> int:
        return sum(target["queue_depth"] for target in gate.snapshot()["targets"].values())

    async def main() -> None:
        async with Client(INSTALLED[-1], gate, transport, upstream.url) as client, cancelled(client.ask):
            await arrived(upstream)
            async with cancelled(client.ask):
                await until(lambda: depth() == 1)
            await until(lambda: depth() == 0)
            assert in_flight(gate) == 1
        await ended(gate, upstream.exchanges[0])

    run(main)
    assert len(upstream.exchanges) == 1


@every_transport
def test_cancellations_at_every_stage_leave_no_slot_in_use(transport: str, upstream: Upstream) -> None:
    gate = gate_in("enforce", cap=8)

    async def main() -> None:
        async with Client(INSTALLED[-1], gate, transport, upstream.url) as client:
            upstream.handler = client.answer()
            for steps in range(0, 300, 3):
                async with cancelled(client.ask):
                    for _ in range(steps):
                        await trio.lowlevel.checkpoint()
            await until(lambda: in_flight(gate) == 0)
            assert await client.ask() == "chatcmpl-1"

    run(main)


@every_transport
def test_deadline_of_the_context_ends_the_call(transport: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = never

    async def main() -> None:
        async with Client(INSTALLED[-1], gate, transport, upstream.url) as client:
            with tidegate.context(deadline=0.2), pytest.raises(module(INSTALLED[-1]).HTTPStatusError, match="504"):
                await client.ask()
            for exchange in upstream.exchanges:
                await ended(gate, exchange)

    run(main)


@every_transport
@pytest.mark.parametrize("name", INSTALLED)
def test_closed_or_collected_response_ends_the_exchange(
    name: Any, transport: Any, upstream: Upstream, gate: tidegate.Gate
) -> None:
    async def main() -> None:
        upstream.handler = Client(name, gate, transport, upstream.url).stall()
        async with gate.httpx_async_client(family=name, transport=transport) as http:
            request = http.build_request("POST", upstream.url + PATH, json={**BODY, "stream": True})
            response = await http.send(request, stream=True)
            await response.aclose()
            await ended(gate, upstream.exchanges[0])
            response = await http.send(request, stream=True)
            del response
            gc.collect()
            await ended(gate, upstream.exchanges[1])

    run(main)


async def pieces() -> AsyncIterator[bytes]:
    for _ in range(50):
        yield b"x" * 10_000
        await trio.lowlevel.checkpoint()


@every_transport
@every_mode
@pytest.mark.parametrize("name", INSTALLED)
def test_upload_is_sent(name: Any, mode: str, transport: Any, upstream: Upstream) -> None:
    gate = gate_in(mode)

    async def main() -> None:
        async with gate.httpx_async_client(family=name, transport=transport) as http:
            assert (await http.post(upstream.url, content=pieces())).status_code == 200

    run(main)
    assert upstream.exchanges[0].body == b"x" * 500_000


@every_transport
@pytest.mark.parametrize("name", INSTALLED)
def test_cancelled_upload_stops_its_source(name: Any, transport: Any, upstream: Upstream, gate: tidegate.Gate) -> None:
    stopped = []

    async def main() -> None:
        waiting = trio.Event()

        async def endless() -> AsyncIterator[bytes]:
            yield b"x"
            waiting.set()
            try:
                await trio.sleep_forever()
            finally:
                stopped.append(True)

        async with gate.httpx_async_client(family=name, transport=transport) as http:
            async with cancelled(lambda: http.post(upstream.url, content=endless())):
                await waiting.wait()
            assert stopped == [True]
            await until(lambda: in_flight(gate) == 0)

    run(main)


@every_transport
@pytest.mark.parametrize("name", INSTALLED)
def test_exception_of_an_upload_is_raised(name: Any, transport: Any, upstream: Upstream, gate: tidegate.Gate) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise KeyError("the file is gone")

    async def main() -> None:
        async with gate.httpx_async_client(family=name, transport=transport) as http:
            with pytest.raises(KeyError, match="the file is gone"):
                await http.post(upstream.url, content=broken())

    run(main)


@pytest.mark.parametrize("name", INSTALLED)
def test_mock_transport_runs_in_the_context_of_the_caller(name: Any, gate: tidegate.Gate) -> None:
    family, place = module(name), contextvars.ContextVar("place", default="nowhere")
    seen = []

    async def respond(_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        seen.append(place.get())
        return family.Response(200, json=CHAT)

    async def main() -> None:
        place.set("here")
        async with gate.httpx_async_client(family=name, transport=family.MockTransport(respond)) as http:
            assert (await http.post("http://llm" + PATH, json=BODY)).json() == CHAT

    run(main)
    assert seen == ["here"]


@every_transport
def test_anyio_on_trio_works(transport: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    async def main() -> None:
        async with Client(INSTALLED[-1], gate, transport, upstream.url) as client:
            upstream.handler = client.answer()
            with anyio.fail_after(WAIT):
                async with anyio.create_task_group() as group:
                    for _ in range(10):
                        group.start_soon(client.ask)
            upstream.handler = never
            async with anyio.create_task_group() as group:
                group.start_soon(client.ask)
                exchange = await arrived(upstream, 11)
                group.cancel_scope.cancel()
            await ended(gate, exchange)

    anyio.run(main, backend="trio")


@every_transport
def test_end_of_the_run_ends_its_calls(transport: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = never
    client = Client(INSTALLED[-1], gate, transport, upstream.url)

    async def main() -> None:
        async with client, trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(client.ask)
            await arrived(upstream, 3)
            raise KeyError

    with pytest.RaisesGroup(KeyError):
        trio.run(main)
    for exchange in upstream.exchanges:
        assert exchange.closed.wait(WAIT)


def open_ports() -> list[_native.Port]:
    gc.collect()
    return [found for found in gc.get_objects() if type(found) is _native.Port and found.usable()]


@pytest.mark.parametrize("descriptors", [True, False], ids=["descriptors", "no descriptors"])
def test_run_leaves_no_port_and_no_thread_behind(
    descriptors: bool, upstream: Upstream, gate: tidegate.Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not descriptors:  # As on Windows.
        monkeypatch.setattr(_event_loop, "_attach_with_reader", lambda _: None)
    before = open_ports()
    client = Client(INSTALLED[-1], gate, "native", upstream.url)
    upstream.handler = client.answer()
    for _ in range(20):
        run(client.ask)
    for thread in threading.enumerate():
        if thread.name == "tidegate-port":
            thread.join(WAIT)
            assert not thread.is_alive()
    assert [port for port in open_ports() if port not in before] == []


def test_trio_in_guest_mode_works_beside_asyncio(upstream: Upstream, gate: tidegate.Gate) -> None:
    client = Client(INSTALLED[-1], gate, "native", upstream.url)
    upstream.handler = client.answer()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        over = loop.create_future()
        trio.lowlevel.start_guest_run(
            client.ask,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=over.set_result,
        )
        assert await client.ask() == "chatcmpl-1"
        assert (await over).unwrap() == "chatcmpl-1"

    asyncio.run(main())


def test_trio_inside_an_asyncio_task_works(upstream: Upstream, gate: tidegate.Gate) -> None:
    client = Client(INSTALLED[-1], gate, "native", upstream.url)
    upstream.handler = client.answer()

    async def main() -> None:  # As in a cell of a notebook.
        assert run(client.ask) == "chatcmpl-1"
        assert await client.ask() == "chatcmpl-1"

    asyncio.run(main())


def test_keyboard_interrupt_ends_the_call(upstream: Upstream, gate: tidegate.Gate) -> None:
    client = Client(INSTALLED[-1], gate, "keep", upstream.url)
    upstream.handler = never

    async def main() -> None:
        async with client, trio.open_nursery() as nursery:
            nursery.start_soon(client.ask)
            await arrived(upstream)
            signal.raise_signal(signal.SIGINT)
            await trio.sleep_forever()

    with pytest.RaisesGroup(KeyboardInterrupt):
        trio.run(main)
    assert upstream.exchanges[0].closed.wait(WAIT)
