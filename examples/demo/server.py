"""The server that the demo calls: a simulator, or the server that environment variables name."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from load_plan import Plan


@dataclass(frozen=True)
class Server:
    """The OpenAI-compatible server that the demo calls: the simulator or a real one."""

    base_url: str
    model: str
    #: Key of all tenants, or None if each tenant has its own, as the simulator needs.
    api_key: str | None

    @property
    def simulated(self) -> bool:
        """Whether the server is the simulator."""
        return self.api_key is None

    def key(self, tenant: str) -> str:
        """Returns the API key with which a tenant calls the server."""
        return self.api_key or f"tenant-{tenant}"

    def reset(self) -> None:
        """Resets the statistics of the simulator, from which `peaks` reads its result."""
        self._ask("reset", b"")

    def peaks(self) -> dict[str, int]:
        """Returns the maximum number of concurrent calls of each tenant since the last reset.

        The server must be the simulator.
        """
        tenants = self._ask("stats")["tenants"]
        return {name.removeprefix("tenant-"): seen["peak_in_flight"] for name, seen in tenants.items()}

    def _ask(self, what: str, body: bytes | None = None) -> Any:
        url = f"{self.base_url.removesuffix('/v1')}/sim/{what}"
        with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=10) as answer:
            return json.load(answer)


def server_from_environment() -> Server | None:
    """Returns the server that the environment variables name.

    These are `TIDEGATE_BASE_URL`, `TIDEGATE_MODEL` and `OPENAI_API_KEY`. Returns None if
    `TIDEGATE_BASE_URL` is not set. If only the model is missing, ends the program with a message.
    """
    base_url = os.environ.get("TIDEGATE_BASE_URL")
    if not base_url:
        return None
    model = os.environ.get("TIDEGATE_MODEL")
    if not model:
        raise SystemExit("TIDEGATE_BASE_URL is set, but TIDEGATE_MODEL is not: set it to the model to call")
    return Server(base_url.rstrip("/"), model, os.environ.get("OPENAI_API_KEY") or "none")


@contextmanager
def simulator(command: str, plan: Plan, workers: int) -> Iterator[Server]:
    """Runs `tidegate sim` on a free port, and yields the server."""
    options = ["--listen", "127.0.0.1:0", "--json", "--time-scale", str(plan.time_scale), "--workers", str(workers)]
    process = subprocess.Popen([command, "sim", *options], stdout=subprocess.PIPE, text=True)
    try:
        ready = process.stdout.readline() if process.stdout else ""
        if not ready:
            raise SystemExit(f"{command} sim did not start (exit status {process.wait()})")
        yield Server(json.loads(ready)["base_url"], "sim", None)
    finally:
        process.terminate()
        process.wait(timeout=10)
