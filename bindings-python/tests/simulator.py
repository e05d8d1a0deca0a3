"""The command `tidegate sim` as a provider that counts and enforces budgets."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

#: A fast engine with much memory, so that only the provider's budget limits calls.
ENGINE = {
    "max_model_len": 1_000_000,
    "num_blocks": 100_000,
}
#: Header with the length of the answer in tokens. Default: `max_tokens`.
LENGTH = "x-sim-output-tokens"


class Provider:
    """A running simulator, which is reached by its base URL."""

    def __init__(self, base_url: str) -> None:
        """Stores the base URL of the simulator's API."""
        self.base_url = base_url
        self.origin = base_url.removesuffix("/v1")

    def stats(self) -> Any:
        """Returns the statistics of the simulator."""
        with urllib.request.urlopen(f"{self.origin}/sim/stats") as answer:
            return json.load(answer)

    def statuses(self) -> dict[str, int]:
        """Returns the number of responses by HTTP status, over all tenants."""
        statuses: Counter[str] = Counter()
        for tenant in self.stats()["tenants"].values():
            statuses.update(tenant["statuses"])
        return dict(statuses)


@contextmanager
def simulated(
    folder: Path, faults: dict[str, Any] | None = None, step_ms: float = 1, **token_rate: Any
) -> Iterator[Provider]:
    """Runs a simulator in real time, and yields it.

    `folder` is where its configuration is written. `faults` has the simulator's setting `faults`,
    and `token_rate` the rate budget in it. `step_ms` is the time of an engine step in milliseconds.
    The environment variable `TIDEGATE_CLI`, which `make test-python` sets, names the command.
    Without the variable, the test is skipped.
    """
    command = os.environ.get("TIDEGATE_CLI")
    if not command:
        pytest.skip("TIDEGATE_CLI does not name the command `tidegate`")
    config = folder / "sim.json"
    budget = {"token_rate": token_rate} if token_rate else {}
    engine = {**ENGINE, "step": {"base_ms": step_ms, "per_prompt_token_ms": 0.001, "per_sequence_ms": 0.001}}
    config.write_text(json.dumps({"engine": engine, "faults": {**budget, **(faults or {})}}))
    with subprocess.Popen(
        [command, "sim", "--listen", "127.0.0.1:0", "--json", "--config", config], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        try:
            yield Provider(json.loads(process.stdout.readline())["base_url"])
        finally:
            process.terminate()
