"""End-to-end tests of a pool with the official client.

The replicas are the vLLM servers in `TIDEGATE_VLLM_URLS` (base URLs, separated by commas), otherwise
two simulated ones.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

import tidegate
from simulator import simulated


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Yields the base URLs of the vLLM servers, or starts two simulators and yields theirs."""
    given = [url.strip() for url in os.environ.get("TIDEGATE_VLLM_URLS", "").split(",") if url.strip()]
    if given:
        yield given
        return
    folders: list[Path] = [tmp_path_factory.mktemp(f"replica-{number}") for number in range(2)]
    with ExitStack() as stack:
        yield [stack.enter_context(simulated(folder)).base_url for folder in folders]


@pytest.fixture
def gate(urls: list[str]) -> tidegate.Gate:
    """Returns a gate with a pool of the replicas.

    `OPENAI_API_KEY` is the replicas' key if it is set.
    """
    pool: dict[str, Any] = {"replicas": urls, "poll": "100ms"}
    if os.environ.get("OPENAI_API_KEY"):
        pool["key_env"] = "OPENAI_API_KEY"
    return tidegate.Gate(targets={"llama": {"pool": pool}})


@pytest.fixture
async def sdk(gate: tidegate.Gate) -> openai.AsyncOpenAI:
    """Returns a wrapped client whose base URL is the pool."""
    key = os.environ.get("OPENAI_API_KEY", "none")
    return gate.wrap(openai.AsyncOpenAI(base_url="http://llama/v1", api_key=key))


async def model(sdk: openai.AsyncOpenAI) -> str:
    """Returns the name of the first model that the pool lists."""
    return (await sdk.models.list()).data[0].id


def ask(number: int) -> Any:
    """Returns the messages of a request with a unique prompt."""
    return [{"role": "user", "content": f"{number}: say a few words about tide gates."}]


async def test_calls_and_streams_complete_and_release_their_slots(sdk: openai.AsyncOpenAI, gate: tidegate.Gate) -> None:
    name = await model(sdk)

    async def whole(number: int) -> int:
        answer = await sdk.chat.completions.create(model=name, messages=ask(number), max_tokens=16)
        assert answer.choices[0].finish_reason in ("stop", "length")
        assert answer.usage is not None
        return answer.usage.completion_tokens

    async def streamed(number: int) -> int:
        stream = await sdk.chat.completions.create(model=name, messages=ask(number), max_tokens=16, stream=True)
        chunks = [chunk async for chunk in stream]
        assert chunks[-1].choices[0].finish_reason in ("stop", "length")
        return len(chunks)

    counts = await asyncio.gather(*(each(number) for number in range(12) for each in (whole, streamed)))
    assert all(counts)
    llama = gate.snapshot()["targets"]["llama"]
    assert llama["in_flight"] == 0
    assert all(replica["requests"] == 0 and replica["state"] == "in" for replica in llama["replicas"])
    attempts = [attempt["replica"] for call in gate.calls() for attempt in call["attempts"]]
    assert set(attempts) <= {replica["url"] for replica in llama["replicas"]}


async def test_models_and_memory_of_the_engine_are_read(sdk: openai.AsyncOpenAI, gate: tidegate.Gate) -> None:
    name = await model(sdk)

    def known() -> bool:
        replicas = gate.snapshot()["targets"]["llama"]["replicas"]
        return all(name in (replica["models"] or []) and replica["kv"] is not None for replica in replicas)

    while not known():
        await sdk.chat.completions.create(model=name, messages=ask(0), max_tokens=1)


async def test_errors_of_the_engine_are_unchanged(sdk: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        await sdk.chat.completions.create(model="no-such-model", messages=ask(0))
    with pytest.raises(openai.BadRequestError):
        await sdk.chat.completions.create(model=await model(sdk), messages=ask(0), max_tokens=0)


async def test_cancelled_call_leaves_no_request_in_the_engine(sdk: openai.AsyncOpenAI, gate: tidegate.Gate) -> None:
    name = await model(sdk)
    stream = await sdk.chat.completions.create(model=name, messages=ask(1), max_tokens=512, stream=True)
    async for _ in stream:
        break
    await stream.close()
    assert gate.snapshot()["targets"]["llama"]["in_flight"] == 0
