"""Where the calls go: a simulator of our own, or the server that the environment names."""

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

    from plan import Plan


@dataclass(frozen=True)
class Server:
    """An OpenAI-compatible server."""

    base_url: str
    model: str
    #: One key for all tenants; None where each has its own (the simulator tells them apart by it).
    api_key: str | None

    @property
    def simulated(self) -> bool:
        """Whether it is ours."""
        return self.api_key is None

    def key(self, tenant: str) -> str:
        """Return the tenant's API key."""
        return self.api_key or f"tenant-{tenant}"

    def reset(self) -> None:
        """Forget what was counted."""
        self._ask("reset", b"")

    def peaks(self) -> dict[str, int]:
        """Return the most calls of each tenant at once, as the simulator saw them."""
        tenants = self._ask("stats")["tenants"]
        return {name.removeprefix("tenant-"): seen["peak_in_flight"] for name, seen in tenants.items()}

    def _ask(self, what: str, body: bytes | None = None) -> Any:
        url = f"{self.base_url.removesuffix('/v1')}/sim/{what}"
        with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=10) as answer:
            return json.load(answer)


def server_from_environment() -> Server | None:
    """Return the server that the environment names, if it does."""
    base_url = os.environ.get("TIDEGATE_BASE_URL")
    if not base_url:
        return None
    model = os.environ.get("TIDEGATE_MODEL")
    if not model:
        raise SystemExit("TIDEGATE_BASE_URL is set: say which model to call in TIDEGATE_MODEL")
    return Server(base_url.rstrip("/"), model, os.environ.get("OPENAI_API_KEY") or "none")


@contextmanager
def simulator(command: str, plan: Plan, workers: int) -> Iterator[Server]:
    """Run `tidegate sim` on a free port."""
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
