"""Tested clients of HTTP libraries other than httpx, and of what is built on them.

Each function returns the tested client of one package. Without a gate, it is the stock client.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp as aiohttp_package
import boto3
import requests as requests_package
from google import genai
from google.genai import types

from client_interface import ASK, CHAT, Closable, Package, TestedClient, in_threads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import tidegate

#: Seconds of silence after which the stock libraries give up. They have no such limit by themselves.
SILENCE = 60


def requests(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a session of requests, with the gate's adapter if there is a gate."""
    session = requests_package.Session()
    session.headers["authorization"] = f"Bearer {key}"
    if gate:
        session.mount("http://", gate.requests_adapter())
    at, body = f"{url}/v1/chat/completions", {"model": "small", "messages": CHAT}

    def ask() -> None:
        session.post(at, json=body, timeout=SILENCE).raise_for_status()

    def lines() -> Closable:
        response = session.post(at, json={**body, "stream": True}, stream=True, timeout=SILENCE)
        response.raise_for_status()
        return Closable(_Lines(response))

    return in_threads(ask, lines)


class _Lines:
    """The lines of a response, which can be closed."""

    def __init__(self, response: requests_package.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        return self._response.iter_lines()

    def close(self) -> None:
        """Closes the response."""
        self._response.close()


def bedrock(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a client of boto3 for Amazon Bedrock, attached to the gate if there is one."""
    keys = {"aws_access_key_id": key, "aws_secret_access_key": key, "region_name": "us-east-1"}
    client: Any = boto3.Session(**keys).client("bedrock-runtime", endpoint_url=url)
    if gate:
        gate.attach_botocore(client)
    call: dict[str, Any] = {"modelId": "small", "messages": [{"role": "user", "content": [{"text": ASK}]}]}
    return in_threads(lambda: client.converse(**call), lambda: Closable(client.converse_stream(**call)["stream"]))


def aiohttp(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns a client that opens a session of aiohttp for each call, which sends through the gate."""
    headers = {"authorization": f"Bearer {key}"}
    at, body = f"{url}/v1/chat/completions", {"model": "small", "messages": CHAT}

    async def ask() -> None:
        async with _session(gate) as http, http.post(at, json=body, headers=headers) as response:
            response.raise_for_status()
            await response.read()

    async def lines() -> AsyncIterator[bytes]:
        streamed = {**body, "stream": True}
        async with _session(gate) as http, http.post(at, json=streamed, headers=headers) as response:
            response.raise_for_status()
            async for line in response.content:
                yield line

    return TestedClient(ask, lines)


def google_genai_aiohttp(url: str, key: str, gate: tidegate.Gate | None) -> TestedClient:
    """Returns an asynchronous client of Google Gen AI that sends with aiohttp."""

    @asynccontextmanager
    async def models() -> AsyncIterator[Any]:
        async with _session(gate) as http:
            options = types.HttpOptions(base_url=url, aiohttp_client=http)
            yield genai.Client(api_key=key, http_options=options).aio.models

    async def ask() -> None:
        async with models() as opened:
            await opened.generate_content(model="small", contents=ASK)

    async def parts() -> AsyncIterator[object]:
        async with models() as opened:
            async for part in await opened.generate_content_stream(model="small", contents=ASK):
                yield part

    return TestedClient(ask, parts)


def _session(gate: tidegate.Gate | None) -> Any:
    if gate:
        return gate.aiohttp_session()
    return aiohttp_package.ClientSession(timeout=aiohttp_package.ClientTimeout(total=None, sock_read=SILENCE))


PACKAGES = [
    Package("requests", requests),
    Package("boto3", bedrock, has_stream_end=False),
    Package("aiohttp", aiohttp),
    Package("google-genai", google_genai_aiohttp, "aiohttp"),
]
