"""The simulator as a server: a whole provider, with budgets that it counts and enforces as providers do."""

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

#: Quick, and with room for whatever a test reserves: what binds is the provider's budget.
ENGINE = {
    "max_model_len": 1_000_000,
    "num_blocks": 100_000,
}
#: Say how long an answer becomes; it is as long as its `max_tokens` else.
LENGTH = "x-sim-output-tokens"


class Provider:
    """A running simulator."""

    def __init__(self, base_url: str) -> None:
        """Remember where it listens."""
        self.base_url = base_url
        self.origin = base_url.removesuffix("/v1")

    def stats(self) -> Any:
        """Return what it saw."""
        with urllib.request.urlopen(f"{self.origin}/sim/stats") as answer:
            return json.load(answer)

    def statuses(self) -> dict[str, int]:
        """Count what it answered, by status."""
        statuses: Counter[str] = Counter()
        for tenant in self.stats()["tenants"].values():
            statuses.update(tenant["statuses"])
        return dict(statuses)


@contextmanager
def simulated(
    folder: Path, faults: dict[str, Any] | None = None, step_ms: float = 1, **token_rate: Any
) -> Iterator[Provider]:
    """Run one, in real time, with this budget, these faults and so long for a token.

    `make test-python` says which command it is.
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
