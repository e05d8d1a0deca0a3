"""Tests of fork, exit and Ctrl-C. Each runs a program in its own process."""

from __future__ import annotations

import signal

import pytest

from programs import finish, start
from provider_payloads import CHAT, CHAT_STREAM
from upstream import WAIT, Upstream, answer, never, stall_after

HEAD = """
import asyncio, os, signal, sys, threading
import openai, tidegate
gate = tidegate.Gate()
M = [{"role": "user", "content": "hello"}]
sdk = gate.wrap(openai.OpenAI(base_url=sys.argv[1], api_key="k"))
asdk = gate.wrap(openai.AsyncOpenAI(base_url=sys.argv[1], api_key="k"))
ask = lambda: sdk.chat.completions.create(model="small", messages=M).id
async def aask(): return (await asdk.chat.completions.create(model="small", messages=M)).id
"""


FORK = """
assert ask() == "chatcmpl-1"
assert asyncio.run(aask()) == "chatcmpl-1"
child = os.fork()
if child == 0:
    signal.alarm(30)  # A child that hangs is killed.
    assert ask() == "chatcmpl-1"
    assert asyncio.run(aask()) == "chatcmpl-1"
    assert gate.snapshot()["active"] == 0
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert ask() == "chatcmpl-1"
assert asyncio.run(aask()) == "chatcmpl-1"
print("done")
"""


HEADS = {"native": HEAD, "kept": HEAD.replace('api_key="k")', 'api_key="k"), transport="keep"')}

# How a process forks: by Python, or by C code, which runs no hooks of Python.
FORKS = {"by Python": "os.fork()", "by C": '__import__("ctypes").PyDLL(None).fork()'}


@pytest.mark.parametrize("fork", FORKS)
@pytest.mark.parametrize("way", HEADS)
@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_gate_works_in_a_forked_child(way: str, fork: str, upstream: Upstream) -> None:
    upstream.handler = answer(CHAT)
    # A connection pool of httpx belongs to one event loop, so each process uses one loop.
    script = FORK if way == "native" else FORK.replace('assert asyncio.run(aask()) == "chatcmpl-1"\nchild', "child")
    assert finish(start(upstream, HEADS[way] + script.replace("os.fork()", FORKS[fork]))) == "done\n"


LOST = """
import types
from tidegate._transport.custom_sync import lost_responses
def assert_closed():
    closed = threading.Event()
    lost_responses.start()
    lost_responses.add(types.SimpleNamespace(close=closed.set), None)
    assert closed.wait(30)
assert_closed()
child = os.fork()
if child == 0:
    assert_closed()
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print("done")
"""


@pytest.mark.parametrize("fork", FORKS)
@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_lost_response_is_closed_in_a_forked_child(fork: str, upstream: Upstream) -> None:
    assert finish(start(upstream, HEAD + LOST.replace("os.fork()", FORKS[fork]))) == "done\n"


FORK_IN_FLIGHT = """
from multiprocessing import get_context
def work(): sys.exit(0 if gate.snapshot()["active"] == 0 else 1)
async def main():
    stream = await asdk.chat.completions.create(model="small", messages=M, stream=True)
    assert gate.snapshot()["active"] == 1
    for _ in range(5):
        child = get_context("fork").Process(target=work)
        child.start()
        await asyncio.to_thread(child.join)
        assert child.exitcode == 0, child.exitcode
    assert gate.snapshot()["active"] == 1
    await stream.close()
asyncio.run(main())
print("done")
"""


@pytest.mark.parametrize("way", HEADS)
@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_open_stream_survives_a_fork(way: str, upstream: Upstream) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0])
    assert finish(start(upstream, HEADS[way] + FORK_IN_FLIGHT)) == "done\n"


LIGHT = """
import asyncio, sys, threading, tidegate
gate = tidegate.Gate()
http, ahttp = gate.httpx_client(timeout=None), gate.httpx_async_client(timeout=None)
get = lambda: http.get(sys.argv[1])
aget = lambda: ahttp.get(sys.argv[1])
"""

KEPT = LIGHT.replace("timeout=None", "timeout=None, transport='keep'")

EXITS = {
    "async": """
async def main():
    tasks = [asyncio.create_task(aget()) for _ in range(8)]
    await asyncio.sleep(0)
    print("sent", flush=True)
    sys.exit(0)
asyncio.run(main())
""",
    "loop left alone": """
loop = asyncio.new_event_loop()
tasks = [loop.create_task(aget()) for _ in range(8)]
loop.call_soon(loop.stop)
loop.run_forever()
print("sent", flush=True)
""",
    "loop without add_reader": """
class Loop(asyncio.SelectorEventLoop):
    def add_reader(self, *_): raise NotImplementedError
loops = [Loop() for _ in range(8)]
tasks = [loop.create_task(aget()) for loop in loops]
for loop in loops:
    loop.call_soon(loop.stop)
    loop.run_forever()
print("sent", flush=True)
""",
    "daemon thread": """
for _ in range(4): threading.Thread(target=get, daemon=True).start()
print("sent", flush=True)
""",
    "stream open": """
response = http.send(http.build_request("GET", sys.argv[1]), stream=True)
print(next(response.iter_raw()), flush=True)
""",
}


@pytest.mark.parametrize("head", [LIGHT, KEPT], ids=["native", "kept"])
@pytest.mark.parametrize("kind", EXITS)
def test_process_exits_with_calls_in_flight(kind: str, head: str, upstream: Upstream) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0]) if kind == "stream open" else never
    for _ in range(5 if head is LIGHT else 2):
        processes = [start(upstream, head + EXITS[kind]) for _ in range(4)]
        for process in processes:
            assert finish(process)


DAEMONS = """
import sys, threading, time, tidegate
gate = tidegate.Gate({"server": {"url": sys.argv[1], "cap": 2}, "slots": {"url": "none", "cap": 1}}, tools={"db": 1})
http = gate.httpx_client(timeout=None, transport=sys.argv[2])
waits = [lambda: http.get(sys.argv[1]), gate.slot("slots").__enter__, gate.tool("db").__enter__]
held = [gate.slot("slots"), gate.tool("db")]
for entered in held: entered.__enter__()
for wait in waits * 3: threading.Thread(target=wait, daemon=True).start()
deadline = time.monotonic() + 30
# The first checks for lost streams, 1 s after the waits began, coincide with the exit.
while len(calls := gate.explain()) < 10 or min(call.waited for call in calls) < 0.97:
    assert time.monotonic() < deadline, calls
    time.sleep(0.01)
print("waiting", flush=True)
"""


@pytest.mark.parametrize("transport", ["native", "keep"])
def test_daemon_threads_in_the_gate_end_without_a_traceback(transport: str, upstream: Upstream) -> None:
    upstream.handler = never
    process = start(upstream, DAEMONS, transport)
    out, err = process.communicate(timeout=2 * WAIT)
    assert (process.returncode, out, err) == (0, "waiting\n", "")


INTERRUPT = """
try:
    ask()
except KeyboardInterrupt:
    print("interrupted", flush=True)
assert all(t["in_flight"] == 0 for t in gate.snapshot()["targets"].values())
"""


@pytest.mark.parametrize("way", HEADS)
def test_keyboard_interrupt_ends_a_sync_call(way: str, upstream: Upstream) -> None:
    upstream.handler = never
    process = start(upstream, HEADS[way] + INTERRUPT)
    exchange = upstream.wait_for(1)
    process.send_signal(signal.SIGINT)
    assert finish(process) == "interrupted\n"
    assert exchange.closed.wait(WAIT)
