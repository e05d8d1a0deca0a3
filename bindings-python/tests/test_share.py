"""Tests of limits that several processes share. Each process runs a program of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
import uuid
from pathlib import Path

import openai
import pytest

import tidegate
from programs import finish, start
from provider_payloads import CHAT, MESSAGES
from tidegate import snapshot as declared
from tidegate.testing import FakeTarget, ok, run
from upstream import WAIT, Exchange, Upstream, answer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no Unix domain sockets")

# Ten callers in a process make calls until each has made twenty.
CALLS = """
import asyncio, os, sys
import openai, tidegate
url, share = sys.argv[1:]
gate = tidegate.Gate(targets={"llm": {"url": url, "cap": 4}}, share={"store": "local", "name": share})
client = gate.wrap(openai.AsyncOpenAI(base_url=url, api_key="k"))
M = [{"role": "user", "content": "hello"}]
async def caller():
    for _ in range(20):
        await client.chat.completions.create(model="small", messages=M)
async def callers():
    await asyncio.gather(*[caller() for _ in range(10)])
"""

RUN = (
    CALLS
    + """
asyncio.run(callers())
print(gate.snapshot()["targets"]["llm"]["share"]["cap"])
"""
)

# A gate that does not say which processes share. The parent makes no calls.
BY_DEFAULT = CALLS.replace(', share={"store": "local", "name": share}', ", share=share")

FORKS = """
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        asyncio.run(callers())
        os._exit(7)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert codes == [7, 7, 7], codes
print("done")
"""
# The broker, and a child that uses no gate but has inherited its sockets.
IDLE_CHILD = (
    CALLS
    + """
import time
asyncio.run(client.chat.completions.create(model="small", messages=M))
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(600)
"""
)
FORKED = CALLS + 'asyncio.run(client.chat.completions.create(model="small", messages=M))' + FORKS


@pytest.fixture
def share() -> str:
    """Returns the name of a share that no other test uses."""
    return f"test-{uuid.uuid4().hex[:20]}"


class Counter:
    """Counts the calls in flight at an upstream, which works for 2 ms on each."""

    def __init__(self, upstream: Upstream) -> None:
        self.in_flight = 0
        self.peak = 0
        self.calls = 0
        self._answer = answer(CHAT)
        self._not_found = answer({}, 404)
        upstream.handler = self.handle

    async def handle(self, exchange: Exchange) -> None:
        if exchange.method != "POST":  # The gate asks whether this is vLLM.
            await self._not_found(exchange)
            return
        self.calls += 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        await asyncio.sleep(0.002)
        # Before the answer, after which the next call may come.
        self.in_flight -= 1
        await self._answer(exchange)


def test_processes_share_a_cap(upstream: Upstream, share: str) -> None:
    counter = Counter(upstream)
    processes = [start(upstream, RUN, share) for _ in range(3)]
    assert [finish(process) for process in processes] == ["4\n"] * 3
    assert counter.calls == 3 * 10 * 20
    assert counter.peak == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forked_workers_share_a_cap(upstream: Upstream, share: str) -> None:
    counter = Counter(upstream)
    assert finish(start(upstream, FORKED, share)) == "done\n"
    assert counter.calls == 1 + 3 * 10 * 20
    assert counter.peak == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("store", ["auto", "off"])
def test_forked_workers_share_by_default(upstream: Upstream, store: str) -> None:
    counter = Counter(upstream)
    assert finish(start(upstream, BY_DEFAULT + FORKS, store)) == "done\n"
    assert counter.calls == 3 * 10 * 20
    assert (counter.peak == 4) == (store == "auto")
    assert 4 <= counter.peak <= 12


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_killed_broker_with_a_forked_child_counts_as_dead(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    Counter(upstream)
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory() as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        broker = start(upstream, IDLE_CHILD, "web")
        assert broker.stdout is not None
        child = int(broker.stdout.readline())
        gate = tidegate.Gate(tools={"db": 4}, share={"store": "local", "name": "web"})
        with gate.tool("db"):
            pass
        [socket] = Path(directory).glob("tidegate/*.0.sock")
        before = socket.stat()
        broker.kill()
        broker.wait()
        deadline = time.monotonic() + WAIT
        while not socket.exists() or socket.stat().st_mtime_ns == before.st_mtime_ns:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # A broker that has stopped would be replaced by one with another number.
        assert not list(Path(directory).glob("tidegate/*.generation"))
        os.kill(child, signal.SIGKILL)
        broker.communicate(timeout=WAIT)


def test_shorthand_shares_under_the_default_name() -> None:
    gate = tidegate.Gate(targets={"llm": 4}, share="local")
    state = gate.snapshot()["targets"]["llm"]["share"]
    assert state is not None
    assert sorted(state) == sorted(declared.ShareSnapshot.__annotations__)


def test_caps_are_not_shared_by_default() -> None:
    assert tidegate.Gate(targets={"llm": 4}).snapshot()["targets"]["llm"]["share"] is None


def test_refusing_target_cannot_be_shared() -> None:
    with pytest.raises(tidegate.ConfigError, match="llm.*on_full"):
        tidegate.Gate(targets={"llm": {"cap": 4, "on_full": "refuse"}}, share="local")
    with FakeTarget().installed(), pytest.raises(tidegate.ConfigError, match="llm.*on_full"):
        tidegate.Gate(targets={"llm": {"cap": 4, "on_full": "refuse"}}, share="local")


def test_gate_in_a_test_shares_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    gate = tidegate.Gate(targets={"llm": 4}, share="local")

    async def chat() -> str | None:
        sdk = gate.wrap(openai.AsyncOpenAI(base_url="https://models.example.com/v1", api_key="k"))
        completion = await sdk.chat.completions.create(model="small", messages=MESSAGES)
        return completion.choices[0].message.content

    with FakeTarget(ok("hi")).installed():
        assert run(chat()) == "hi"
        assert gate.snapshot()["targets"]["llm"]["share"] is None
    assert gate.snapshot()["targets"]["llm"]["share"] is not None
    assert list(tmp_path.iterdir()) == []
