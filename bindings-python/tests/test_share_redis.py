"""Tests of limits that several processes share over a real Redis server, with TLS and a password."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidegate
from certificate_authority import Authority
from programs import finish, start
from test_share import Counter
from upstream import Upstream

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")

# Ten callers in a process make calls until each has made ten.
RUN = """
import asyncio, sys
import openai, tidegate
url, store = sys.argv[1:]
share = {"store": store, "password_env": "STORE_PASSWORD"}
gate = tidegate.Gate(targets={"llm": {"url": url, "cap": 4}}, share=share)
client = gate.wrap(openai.AsyncOpenAI(base_url=url, api_key="k"))
async def caller():
    for _ in range(10):
        await client.chat.completions.create(model="small", messages=[{"role": "user", "content": "hello"}])
async def callers():
    await asyncio.gather(*[caller() for _ in range(10)])
asyncio.run(callers())
state = gate.snapshot()["targets"]["llm"]["share"]
print(state["cap"], state["safe_mode"])
"""


# The same in a child that exits without the functions of `atexit`.
FORKED = RUN.replace(
    "asyncio.run(callers())",
    """
import multiprocessing
def work(): asyncio.run(callers())
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
assert child.exitcode == 0
""",
)

# The same if only the child imports the package.
IMPORTED = f"""
import multiprocessing
def work():
    exec({RUN!r}, {{}})
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
assert child.exitcode == 0
"""

# The same if a child of a fork server imports the package while it reads its arguments.
SERVED = f"""
import multiprocessing, tidegate
arguments = ({RUN!r}, {{"error": tidegate.Error}})
child = multiprocessing.get_context("forkserver").Process(target=exec, args=arguments)
child.start()
child.join()
assert child.exitcode == 0
"""

# The same in a worker process of Celery, which exits without finalizers, too, and sends a signal before.
CELERY = (
    """
import os, sys, types
class Signal:
    def __init__(self):
        self.receivers = {}
    def connect(self, receiver, *, weak, dispatch_uid):
        self.receivers[dispatch_uid] = receiver
    def send(self, **details):
        for receiver in self.receivers.values():
            receiver(signal=self, sender=None, **details)
shutdown = Signal()
sys.modules["celery.signals"] = types.SimpleNamespace(worker_process_shutdown=shutdown)
"""
    + RUN
).replace(
    "asyncio.run(callers())",
    """
worker = os.fork()
if not worker:
    asyncio.run(callers())
    shutdown.send(pid=os.getpid(), exitcode=0)
    os._exit(0)
assert os.waitpid(worker, 0)[1] == 0
""",
)


def command(port: int, folder: Path, *words: str) -> str:
    """Sends a command over TLS, and returns the answer."""
    login = ["--tls", "--cacert", str(folder / "ca.pem"), "-a", "secret", "--no-auth-warning"]
    return subprocess.run(
        ["redis-cli", "-h", "127.0.0.1", "-p", str(port), *login, *words],
        capture_output=True,
        text=True,
        check=False,
    ).stdout


@pytest.fixture
def store(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serves Redis over TLS only, and returns its URL. Programs trust its certificate."""
    folder = authority.folder
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    certificate = authority.ca.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / "redis.pem"))
    files = ["--tls-cert-file", "redis.pem", "--tls-key-file", "redis.pem", "--tls-ca-cert-file", str(authority.file)]
    options = ["--port", "0", "--tls-port", str(port), "--tls-auth-clients", "no", "--bind", "127.0.0.1", "--save", ""]
    server = subprocess.Popen(
        ["redis-server", *options, *files, "--requirepass", "secret"], cwd=folder, stdout=subprocess.DEVNULL
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    monkeypatch.setenv("STORE_PASSWORD", "secret")
    try:
        while "PONG" not in command(port, folder, "ping"):
            assert server.poll() is None
        yield f"rediss://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def test_processes_share_a_cap(upstream: Upstream, store: str) -> None:
    counter = Counter(upstream)
    processes = [start(upstream, RUN, store) for _ in range(3)]
    assert [finish(process) for process in processes] == ["4 False\n"] * 3
    assert counter.calls == 3 * 10 * 10
    assert counter.peak == 4


@pytest.mark.parametrize(
    "script",
    [RUN, FORKED, IMPORTED, SERVED, CELERY],
    ids=["process", "forked child", "importing child", "child of a fork server", "Celery worker"],
)
def test_process_that_exits_returns_its_slots(
    script: str, upstream: Upstream, authority: Authority, store: str
) -> None:
    counter = Counter(upstream)
    finish(start(upstream, script, store))
    assert counter.calls == 10 * 10
    port = int(store.rpartition(":")[2])
    # The last member has left, so that nothing is left.
    assert command(port, authority.folder, "keys", "*").strip() == ""


def test_missing_password_is_an_error() -> None:
    assert "NO_SUCH_PASSWORD" not in os.environ
    with pytest.raises(tidegate.ConfigError, match="NO_SUCH_PASSWORD is not set"):
        tidegate.Gate(share={"store": "redis://127.0.0.1", "password_env": "NO_SUCH_PASSWORD"})


def test_password_in_the_url_is_not_repeated() -> None:
    with pytest.raises(tidegate.ConfigError, match=r"share\.password_env") as failed:
        tidegate.Gate(share="redis://:hunter2@127.0.0.1")
    assert "hunter2" not in str(failed.value)
