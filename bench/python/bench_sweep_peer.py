"""Experiment: the calls that `tidegate sweep` and NVIDIA's aiperf need to find a server's limit.

Each search runs over real sockets against a simulated server of its own: one engine at ten times
its speed, which answers 429 to a call that finds 24 in flight. Prompts have 128 tokens and answers
32. The server counts the calls. Prints one JSON object as its last line.

aiperf searches for the highest concurrency with an error share below 1 % (`--search-recipe
max-concurrency-under-sla`), with its most favourable options: 100 requests per probe instead of
1,000, a warm-up before each probe of 0.1 s instead of 60 s, no telemetry, and one worker. aiperf
downloads its tokenizers, so this script makes one for it from the words of aiperf's own corpus.

    python bench_sweep_peer.py [STYLE ...]    (aiperf's --search-style)

The default styles are `smooth_isotonic` and `monotonic`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from experiment_support import bar, note, report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT, SPEED = 24, 10
PROMPT, ANSWER, PROBE = 128, 32, 100
#: The call budget of our sweep.
MOST_CALLS = 900
#: The timeout of one search, in seconds.
PATIENCE = 3600
STYLES = ("smooth_isotonic", "monotonic")
SERVER = {"workers": 1, "time_scale": SPEED, "models": ["sim"], "faults": {"concurrency_limit": LIMIT}}
#: Environment variables that reduce the warm-ups of aiperf to 0.1 s.
LEAST_WARM_UP = {
    f"AIPERF_SEARCH_PLANNER_{name}": "0.1"
    for name in ("DEFAULT_WARMUP_SECONDS", "FIRST_PROBE_WARMUP_FLOOR", "REPLICATE_WARMUP_FLOOR")
}


class Found(NamedTuple):
    """The result of a search: the cap that it found, or None, and other figures by name."""

    cap: int | None
    notes: dict[str, Any]


def command() -> str:
    """Returns the command that runs tidegate.

    This is the value of the environment variable `TIDEGATE_CLI`, or `tidegate` if it is not set.
    """
    return os.environ.get("TIDEGATE_CLI", "tidegate")


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Runs a simulated server that limits concurrent calls, and yields its base URL."""
    config = folder / "sim.json"
    config.write_text(json.dumps(SERVER))
    options = ["--listen", "127.0.0.1:0", "--json", "--config", str(config)]
    process = subprocess.Popen([command(), "sim", *options], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["base_url"]
    finally:
        process.terminate()
        process.wait(timeout=30)


def seen(base_url: str) -> dict[str, Any]:
    """Returns the number of calls that the server received, and how many it answered with 429."""
    with urllib.request.urlopen(f"{base_url.removesuffix('/v1')}/sim/stats", timeout=30) as answer:  # noqa: S310 - loopback
        stats = json.load(answer)
    statuses: dict[str, int] = {}
    for tenant in stats["tenants"].values():
        for status, count in tenant["statuses"].items():
            statuses[status] = statuses.get(status, 0) + count
    return {"calls": stats["total_attempts"], "turned away": statuses.get("429", 0)}


def measured(search: Callable[[str, Path], Found]) -> dict[str, Any]:
    """Runs a search for the server's limit against a new server.

    Returns, by name, the cap that the search found, the number of its calls, the number of calls
    that got a 429, the duration in seconds, and the notes of the search.
    """
    with TemporaryDirectory() as folder, server(Path(folder)) as base_url:
        began = time.perf_counter()
        found = search(base_url, Path(folder))
        wall = time.perf_counter() - began
        return {"answer": found.cap, **seen(base_url), "wall, s": round(wall, 1), **found.notes}


def ours(base_url: str, folder: Path) -> Found:  # noqa: ARG001 - as the other search
    """Runs `tidegate sweep` against the server, and returns the cap that it found."""
    lengths = ["--input-tokens", str(PROMPT), "--output-tokens", str(ANSWER)]
    done = subprocess.run(
        [command(), "sweep", "--url", base_url, "--model", "sim", *lengths, "--yes", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    answer = json.loads(done.stdout)["answer"]
    notes = {"what binds": answer["binding"], "interval": answer["interval"], "confirmed": answer["confirmed"]}
    return Found(answer["cap"], notes)


def aiperf(style: str) -> Callable[[str, Path], Found]:
    """Returns a function that runs aiperf's search with `--search-style STYLE` against a server."""

    def search(base_url: str, folder: Path) -> Found:
        artifacts = folder / "artifacts"
        options = {
            "--model": "sim",
            "--url": base_url.removesuffix("/v1"),
            "--endpoint-type": "chat",
            "--tokenizer": str(folder / "tokenizer"),
            "--isl": PROMPT,
            "--osl": ANSWER,
            "--search-recipe": "max-concurrency-under-sla",
            "--search-style": style,
            "--error-rate-sla": 0.01,
            "--request-count": PROBE,
            "--workers-max": 1,
            "--record-processors": 1,
            "--random-seed": 1,
            "--ui": "none",
            "--artifact-dir": str(artifacts),
        }
        make_tokenizer(folder / "tokenizer")
        flags = ["--streaming", "--no-gpu-telemetry", "--no-server-metrics"]
        given = [str(part) for option in options.items() for part in option]
        program = Path(sys.executable).with_name("aiperf")
        # These variables would keep aiperf from reading a tokenizer by its path.
        online = {
            name: value for name, value in os.environ.items() if name not in {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}
        }
        log = folder / "aiperf.log"
        with log.open("w") as said:
            # Its services are processes of its group, which must not outlive it.
            process = subprocess.Popen(
                [program, "profile", *given, *flags],
                stdout=said,
                stderr=said,
                cwd=folder,
                env={**online, **LEAST_WARM_UP},
                start_new_session=True,
            )
            try:
                process.wait(timeout=PATIENCE)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        history = artifacts / "search_history.json"
        if not history.exists():
            sys.exit(f"aiperf ended with {process.returncode}:\n{log.read_text()[-4000:]}")
        return verdict(json.loads(history.read_text()))

    return search


def verdict(history: dict[str, Any]) -> Found:
    """Returns the result of a search from the history that aiperf wrote.

    The cap is the highest concurrency that met aiperf's condition, or None if none did.
    """
    boundary = (history.get("boundary_summary") or {}).get("feasible_max") or {}
    probed = [
        (step["variation_values"]["phases.profiling.concurrency"], step["feasible"]) for step in history["iterations"]
    ]
    notes = {"probes": len(probed), "why it ended": history.get("convergence_reason")}
    passed = [cap for cap, feasible in probed if feasible]
    return Found(boundary.get("value", max(passed, default=None)), notes)


def make_tokenizer(folder: Path) -> None:
    """Trains a tokenizer on the words of aiperf's corpus, and saves it in `folder`."""
    import aiperf.dataset.generator as corpus  # noqa: PLC0415 - slow, and here alone
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    assert corpus.__file__ is not None
    text = Path(corpus.__file__).with_name("assets") / "shakespeare.txt"
    tokenizer = Tokenizer(models.WordLevel(unk_token="the"))  # noqa: S106 - a word
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(vocab_size=8_192, special_tokens=["<s>", "</s>"], show_progress=False)
    tokenizer.train([str(text)], trainer)
    ends = {"bos_token": "<s>", "eos_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends).save_pretrained(str(folder))


def main() -> None:
    """Runs the search of tidegate and those of aiperf in turn, and prints the result as JSON."""
    figures = measured(ours)
    note(f"tidegate sweep: {figures}")
    peers = {}
    for style in sys.argv[1:] or STYLES:
        name = f"aiperf, {style}"
        peers[name] = measured(aiperf(style))
        note(f"{name}: {peers[name]}")
    bars = [
        bar("answer, where the limit is 24", figures["answer"] or 0, "==", LIMIT),
        bar("calls spent", figures["calls"], "<=", MOST_CALLS),
    ]
    report("sweep-peer", figures, peers, bars)


if __name__ == "__main__":
    main()
