#!/usr/bin/env python3
"""Runs the examples of this folder on a model server that counts its calls.

run.py [--node NODE_MODULES] [NAME...]

For each engine, checks that all calls were answered, that several processes made them, and that the
server had as many calls in flight as the cap of 4 allows, and never more. Without the gate
(TIDEGATE=off), it must have more. NAME is gunicorn, celery, dask, ray or node.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).resolve().parent
CAP = 4
# Time that a call takes.
SERVICE_S = 0.05
STARTS_WITHIN_S = 60
ENDS_WITHIN_S = 180


class ModelServer(ThreadingHTTPServer):
    """Answers calls to a model, and counts those in flight. It knows nothing of gates."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        """Binds a free loopback port."""
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Begins to count again."""
        self.in_flight = self.peak = self.calls = 0
        self.processes: set[str] = set()

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    """Serves one connection."""

    protocol_version = "HTTP/1.1"
    server: ModelServer

    def do_GET(self) -> None:
        """Answers requests for what this server does not have."""
        self.reply(404, {})

    def do_POST(self) -> None:
        """Answers a call to the model."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        server = self.server
        with server.lock:
            server.calls += 1
            server.in_flight += 1
            server.peak = max(server.peak, server.in_flight)
            server.processes.add(self.headers.get("x-process", "?"))
        time.sleep(SERVICE_S)
        # Before the answer, after which the next call may come.
        with server.lock:
            server.in_flight -= 1
        message = {"role": "assistant", "content": "An answer."}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
        self.reply(
            200,
            {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage},
        )

    def reply(self, status: int, body: object) -> None:
        """Sends an answer."""
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


def free_port() -> int:
    """Returns a port that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def running(*command: str, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program until the end of the block."""
    process = subprocess.Popen(command, cwd=HERE, env=env, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(what: str, condition: Callable[[], bool]) -> None:
    """Waits until a condition holds."""
    give_up_at = time.monotonic() + STARTS_WITHIN_S
    while not condition():
        if time.monotonic() > give_up_at:
            sys.exit(f"{what} does not start")
        time.sleep(0.1)


def listens(port: int) -> bool:
    """Whether a server accepts connections on a port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def job(*command: str, env: dict[str, str]) -> None:
    """Runs a program that must succeed."""
    quiet = subprocess.DEVNULL
    subprocess.run(command, cwd=HERE, env=env, check=True, timeout=ENDS_WITHIN_S, stdout=quiet, stderr=quiet)


def gunicorn(env: dict[str, str]) -> int:
    """Sends requests to a web application. Returns the number of calls."""
    port = free_port()
    options = ["--preload", "--workers", "4", "--threads", "8", "--bind", f"127.0.0.1:{port}", "--log-level", "error"]
    with running(sys.executable, "-m", "gunicorn", *options, "gunicorn_app:app", env=env):
        until("gunicorn", lambda: listens(port))

        def request(number: int) -> bytes:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{number}", timeout=ENDS_WITHIN_S) as response:
                return bytes(response.read())

        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            answers = list(pool.map(request, range(120)))
    assert set(answers) == {b"An answer."}, answers
    return len(answers)


def celery(env: dict[str, str]) -> int:
    """Runs tasks on two workers with four processes each. Returns the number of calls."""
    port = free_port()
    env = env | {"REDIS_URL": f"redis://127.0.0.1:{port}/0", "PYTHONPATH": str(HERE)}
    options = ["--concurrency", "4", "--loglevel", "ERROR", "--without-gossip", "--without-mingle"]
    worker = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", *options, "-n"]
    with contextlib.ExitStack() as stack:
        server = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--loglevel", "warning"]
        stack.enter_context(running(*server, env=env))
        until("redis-server", lambda: listens(port))
        for name in ("first@%h", "second@%h"):
            stack.enter_context(running(*worker, name, env=env))
        submit = (
            "from celery_app import ask; from celery import group\\n"
            "print(len(group(ask.s(str(n)) for n in range(80)).apply_async().get(timeout=120)), 'answers')"
        ).replace("\\n", "\n")
        job(sys.executable, "-c", submit, env=env)
    return 80


def dask(env: dict[str, str]) -> int:
    """Runs a job on a Dask cluster. Returns the number of calls."""
    job(sys.executable, "dask_job.py", env=env)
    return 80


def ray(env: dict[str, str]) -> int:
    """Runs a data pipeline and actors on Ray. Returns the number of calls."""
    job(sys.executable, "ray_job.py", env=env)
    return 80


def node(env: dict[str, str]) -> int:
    """Runs a Node cluster. Returns the number of calls."""
    job("node", "node_cluster.mjs", env=env)
    return 80


ENGINES: dict[str, Callable[[dict[str, str]], int]] = {
    "gunicorn": gunicorn,
    "celery": celery,
    "dask": dask,
    "ray": ray,
    "node": node,
}


def main() -> int:
    """Runs the engines, and prints what the server has counted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*ENGINES, []])
    parser.add_argument("--node", type=Path, help="the folder node_modules with tidegate")
    arguments = parser.parse_args()
    server = ModelServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    failed = False
    # Ray binds sockets below this folder, whose paths must be short.
    with tempfile.TemporaryDirectory(prefix="tide") as folder, contextlib.ExitStack() as stack:
        if arguments.node:
            link = HERE / "node_modules"
            link.symlink_to(arguments.node.resolve())
            stack.callback(link.unlink)
        env = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "any", "XDG_RUNTIME_DIR": folder}
        env |= {"RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
        for name in arguments.names or ENGINES:
            if name == "celery" and shutil.which("redis-server") is None:
                print("celery: not run, because redis-server is not installed")
                continue
            seen = {}
            for mode in ("on", "off"):
                server.reset()
                expected = ENGINES[name](env | {"TIDEGATE": mode})
                seen[mode] = server.peak
                failed |= server.calls != expected or len(server.processes) < 2
                print(f"{name}, gate {mode}: {server.calls} of {expected} calls from {len(server.processes)} processes")
            is_right = seen["on"] == CAP < seen["off"]
            failed |= not is_right
            print(
                f"{'ok' if is_right else 'FAILED'}  {name}: at most {seen['on']} calls in flight (cap {CAP}), "
                f"without the gate {seen['off']}",
                flush=True,
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
