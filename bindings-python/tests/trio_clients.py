"""Asynchronous clients of each kind under a gate, with one interface, and helpers for trio."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import AsyncIterator, Callable
from typing import Any

import trio

import tidegate
from custom_transports import in_flight
from httpx_packages import INSTALLED, module
from provider_payloads import CHAT, CHAT_STREAM, MESSAGE, MESSAGE_STREAM, MESSAGES
from upstream import WAIT, Exchange, Handler, Upstream, answer, events, stall_after

SDKS = [name for name in ("openai", "anthropic") if importlib.util.find_spec(name)]
KINDS = [*INSTALLED, *SDKS]
TRANSPORTS = ["native", "keep"]
MODES = ["enforce", "observe"]
TIMEOUT = 600.0  # Seconds.


class Client:
    """A client of one kind whose calls go through a gate to the upstream.

    `kind` is `httpx`, `httpx2`, `openai` or `anthropic`, and `read` its read timeout in seconds.
    """

    def __init__(self, kind: str, gate: tidegate.Gate, transport: Any, url: str, read: float = TIMEOUT) -> None:
        self.kind = kind
        timeout = module(kind).Timeout(TIMEOUT, read=read)
        self._sdk: Any
        if kind in SDKS:
            package = module(kind)
            cls = package.AsyncOpenAI if kind == "openai" else package.AsyncAnthropic
            base_url = f"{url}/v1" if kind == "openai" else url
            original = cls(base_url=base_url, api_key="k", timeout=timeout)
            self._sdk, self._close = gate.wrap(original, transport=transport), original.close
        else:
            family: Any = kind
            self._sdk = gate.httpx_async_client(family=family, transport=transport, base_url=url, timeout=timeout)
            self._close = self._sdk.aclose

    @property
    def payload(self) -> Any:
        """The body of a successful response."""
        return MESSAGE if self.kind == "anthropic" else CHAT

    @property
    def events(self) -> list[Any]:
        """The events of a successful stream."""
        return MESSAGE_STREAM if self.kind == "anthropic" else CHAT_STREAM

    def answer(self, **headers: str) -> Handler:
        """Returns a handler that answers with `payload`."""
        return answer(self.payload, **headers)

    def answer_stream(self) -> Handler:
        """Returns a handler that answers with the whole stream."""
        return events(*self.events)

    def stall(self) -> Handler:
        """Returns a handler that sends the part of the stream up to its first text, and no more."""
        return stall_after(*self.events[: 3 if self.kind == "anthropic" else 1])

    async def ask(self) -> str:
        """Makes a call, and returns the id of its response."""
        if self.kind == "openai":
            found = await self._sdk.chat.completions.create(model="small", messages=MESSAGES)
            return found.id
        if self.kind == "anthropic":
            found = await self._sdk.messages.create(model="small", max_tokens=5, messages=MESSAGES)
            return found.id
        response = await self._sdk.post("/v1/chat/completions", json={"model": "small", "messages": MESSAGES})
        response.raise_for_status()
        return response.json()["id"]

    async def read_stream(self, on_chunk: Callable[[], object] = lambda: None) -> int:
        """Makes a streamed call, calls `on_chunk` for each chunk, and returns their number."""
        count = 0
        async with contextlib.AsyncExitStack() as stack:
            if self.kind in SDKS:
                chunks = await self._open_sdk_stream()
                stack.push_async_callback(chunks.close)
            else:
                body = {"model": "small", "messages": MESSAGES, "stream": True}
                response = await stack.enter_async_context(self._sdk.stream("POST", "/v1/chat/completions", json=body))
                response.raise_for_status()
                chunks = await stack.enter_async_context(contextlib.aclosing(response.aiter_raw()))
            async for _ in chunks:
                count += 1
                on_chunk()
        return count

    async def _open_sdk_stream(self) -> Any:
        if self.kind == "openai":
            return await self._sdk.chat.completions.create(model="small", messages=MESSAGES, stream=True)
        return await self._sdk.messages.create(model="small", max_tokens=5, messages=MESSAGES, stream=True)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        with trio.CancelScope(shield=True):
            await self._close()

    def timeout_error(self) -> type[Exception]:
        """Returns the class of the exception that the client raises after a timeout."""
        package = module(self.kind)
        error: type[Exception] = package.APITimeoutError if self.kind in SDKS else package.ReadTimeout
        return error


def run(function: Callable[[], Any]) -> Any:
    """Runs an asynchronous function on trio, for at most 30 s, and returns its result."""

    async def main() -> Any:
        with trio.fail_after(WAIT):
            return await function()

    return trio.run(main)


async def until(condition: Callable[[], bool]) -> None:
    """Waits, without blocking the event loop, until `condition()` is true."""
    while not condition():
        await trio.lowlevel.checkpoint()


async def arrived(upstream: Upstream, count: int = 1) -> Exchange:
    """Waits until `count` requests have arrived, and returns the last of them."""
    return await trio.to_thread.run_sync(upstream.wait_for, count)


async def ended(gate: tidegate.Gate, exchange: Exchange) -> None:
    """Waits until the client has closed the connection of an exchange and no slot is in use."""
    assert await trio.to_thread.run_sync(exchange.closed.wait, WAIT)
    await until(lambda: in_flight(gate) == 0 and gate.snapshot()["active"] == 0)


@contextlib.asynccontextmanager
async def cancelled(function: Callable[[], Any]) -> AsyncIterator[None]:
    """Runs a call in a nursery during the block, then cancels the call, which must be waiting."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(function)
        yield
        nursery.cancel_scope.cancel()
