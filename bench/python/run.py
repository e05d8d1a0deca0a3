"""Experiment `run`: `tidegate run` with 20,000 requests under rate limits, and killed fifty times.

The first part compares the duration and the failures of the command with those of the client of
OpenAI's cookbook: a semaphore, and retries with random exponential backoff. The second part counts
the output lines that kills lose or duplicate, and the attempts that they cost. The server is
`tidegate sim` over real sockets, whose statistics show the attempts that it received. Prints a JSON
object as its last line.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import openai

from experiment_support import bar, note, report

if TYPE_CHECKING:
    from collections.abc import Iterator

CLI = os.environ["TIDEGATE_CLI"]
SEED = 7
LINES, KILLS = 20_000, 50
RPM, TPM, DEPTH_S = 6_000, 1_500_000, 60
RATE = {"requests_per_minute": RPM, "tokens_per_minute": TPM, "burst_s": DEPTH_S}
# As the cookbook has it: random exponential backoff from 1 s to 60 s, six attempts. It names no semaphore; these are
# what people take.
SEMAPHORES, ATTEMPTS, LEAST, MOST = (64, 256), 6, 1.0, 60.0
# The most attempts at the server per line. A run that begins again after each kill needs more.
ATTEMPTS_PER_LINE = 1.75


@contextmanager
def simulated(step_ms: float, **faults: object) -> Iterator[str]:
    """Runs a simulated server, and yields its base URL.

    Its engine has capacity for all requests, so only the rate limits in `faults` can reject them.
    `step_ms` is the duration of one step of the engine, in milliseconds.
    """
    step = {"base_ms": step_ms, "per_prompt_token_ms": 0.0, "per_sequence_ms": 0.0}
    engine = {
        "num_blocks": 1_000_000,
        "max_num_seqs": 100_000,
        "max_num_batched_tokens": 10_000_000,
        "prefix_cache": False,
        "step": step,
    }
    config = {"workers": 1, "engine": engine, "faults": faults, "attempt_log": 1}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(config, file)
        file.flush()
        command = [CLI, "sim", "--listen", "127.0.0.1:0", "--json", "--config", file.name]
        server = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["base_url"]
        finally:
            server.terminate()
            server.wait()


def books(url: str) -> Counter[str]:
    """Returns the number of attempts at the server: all `attempts`, by outcome and by status."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/sim/stats", timeout=10) as answer:
        tenants = json.load(answer)["tenants"].values()
    counts: Counter[str] = Counter()
    for tenant in tenants:
        counts["attempts"] += tenant["attempts"]
        counts.update(tenant["outcomes"])
        counts.update(tenant["statuses"])
    return counts


def write(path: Path, longest: int) -> list[dict[str, Any]]:
    """Writes a batch file of `LINES` requests of mixed sizes, and returns their bodies.

    Each request asks for at least 4 and fewer than `longest` output tokens.
    """
    rng = random.Random(SEED)
    bodies = []
    with path.open("w") as file:
        for number in range(LINES):
            text = f"{number} " + "tide " * rng.randrange(10, 400)
            body = {
                "model": "sim",
                "max_tokens": rng.randrange(4, longest),
                "messages": [{"role": "user", "content": text}],
            }
            request = {"custom_id": f"request-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(request) + "\n")
            bodies.append(body)
    return bodies


def records(path: Path) -> list[dict[str, Any]]:
    """Returns the records of an output file, which may be compressed with gzip or zstd."""
    if path.suffix == ".zst":
        text = subprocess.run(["zstd", "-dcq", path], check=True, capture_output=True).stdout.decode()
    else:
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return [json.loads(line) for line in text.splitlines()]


def bound(found: list[dict[str, Any]], bodies: list[dict[str, Any]]) -> float:
    """Returns the minimum duration that the rate limits allow for all requests, in seconds.

    This is the time in which the buckets of tokens and requests supply the cost of all requests,
    minus the time that their initial content saves. A request costs its prompt tokens, which the
    output records `found` contain, and its maximum output tokens.
    """
    cost = sum(
        record["response"]["body"]["usage"]["prompt_tokens"] + bodies[int(record["custom_id"][8:])]["max_tokens"]
        for record in found
    )
    return max(cost / TPM * 60, len(bodies) / RPM * 60) - DEPTH_S


def run(folder: Path, url: str, output: str, *options: str) -> tuple[subprocess.Popen[bytes], float]:
    """Starts `tidegate run`. Returns its process, and its start time on the monotonic clock."""
    command = [CLI, "run", folder / "in.jsonl", "-o", folder / output, "--url", url, "--quiet", *options]
    return subprocess.Popen(command), time.monotonic()


def ours(folder: Path, bodies: list[dict[str, Any]], *options: str) -> dict[str, Any]:
    """Runs `tidegate run` over the whole file under rate limits, and returns its figures.

    These are its duration, in seconds and relative to `bound`, and the numbers of failed lines and
    of 429s.
    """
    with simulated(20.0, token_rate=RATE) as url:
        command, began = run(folder, url, "out.jsonl", "--overwrite", *options)
        code = command.wait()
        wall = time.monotonic() - began
        seen = books(url)
    found = records(folder / "out.jsonl")
    good = {record["custom_id"] for record in found if record["response"]["status_code"] == 200}
    least = bound(found, bodies)
    return {
        "wall, s": round(wall, 1),
        "lower bound, s": round(least, 1),
        "wall / lower bound": round(wall / least, 3),
        "failed lines": LINES - len(good) if code == 0 else LINES,
        "429s": seen["429"],
    }


async def cookbook(folder: Path, bodies: list[dict[str, Any]], semaphore: int) -> dict[str, Any]:
    """Sends the same requests with the cookbook's client, and returns the same figures as `ours`.

    `semaphore` is the maximum number of concurrent calls.
    """
    rng = random.Random(SEED)
    least = bound(records(folder / "out.jsonl"), bodies)
    with simulated(20.0, token_rate=RATE) as url:
        client = openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0)
        slots, began = asyncio.Semaphore(semaphore), time.monotonic()

        async def ask(body: dict[str, Any]) -> bool:
            async with slots:
                for attempt in range(ATTEMPTS):
                    try:
                        await client.chat.completions.create(**body)
                    except (openai.RateLimitError, openai.APIConnectionError):
                        if attempt + 1 < ATTEMPTS:
                            await asyncio.sleep(rng.uniform(LEAST, min(MOST, LEAST * 2.0 ** (attempt + 1))))
                    else:
                        return True
                return False

        answered = await asyncio.gather(*(ask(body) for body in bodies))
        wall = time.monotonic() - began
        seen = books(url)
        await client.close()
    return {
        "wall, s": round(wall, 1),
        "wall / lower bound": round(wall / least, 3),
        "failed lines": answered.count(False),
        "429s": seen["429"],
    }


def killed(folder: Path, output: str, *options: str, step_ms: float, times: tuple[float, float]) -> dict[str, Any]:
    """Starts `tidegate run` and kills it after a random time, `KILLS` times. Then lets it finish.

    `step_ms` is the duration of a step of the server, which must be so long that the kills come before
    the end of the run. `times` are the bounds of the time until a kill, in seconds. Returns the numbers
    of kills and of lost and duplicated output lines, among other figures.
    """
    rng = random.Random(SEED)
    path = folder / output
    with simulated(step_ms) as url:
        kills = 0
        for _ in range(KILLS):
            command, _ = run(folder, url, output, *options)
            try:
                command.wait(rng.uniform(*times))
            except subprocess.TimeoutExpired:
                command.kill()
                command.wait()
                kills += 1
        command, _ = run(folder, url, output, *options)
        code = command.wait()
        seen = books(url)
    lines = Counter(record["custom_id"] for record in records(path))
    return {
        "kills": kills,
        "exit code": code,
        "lines lost": LINES - len(lines),
        "lines duplicated": sum(count - 1 for count in lines.values()),
        "attempts at the server for a line": round(seen["attempts"] / LINES, 3),
        "attempts broken off by a kill": seen["aborted"],
    }


def killed_later(folder: Path, output: str, *options: str) -> dict[str, Any]:
    """Like `killed`, after 1 s to 3 s, because compressed answers are written each second only."""
    return killed(folder, output, "--cap", "32", *options, step_ms=25.0, times=(1.0, 3.0))


def main() -> None:
    """Runs both parts of the experiment, and prints the result."""
    figures: dict[str, Any] = {}
    peers: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bodies = write(folder / "in.jsonl", 64)
        figures["quota"] = ours(folder, bodies)
        note(f"ours: {figures['quota']}")
        for semaphore in SEMAPHORES:
            peer = asyncio.run(cookbook(folder, bodies, semaphore))
            peers[f"cookbook, semaphore of {semaphore}"] = {"quota": peer}
            note(f"cookbook, {semaphore}: {peer}")
        # The comparison: the same limits configured, and the provider's headers ignored.
        limits = folder / "limits.toml"
        limits.write_text(f'[targets.sim]\nmodels = "sim"\nrpm = {RPM}\ntpm = {TPM}\nheaders = "ignore"\n')
        figures["quota, headers ignored"] = ours(folder, bodies, "--config", str(limits))
        note(f"headers ignored: {figures['quota, headers ignored']}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "in.jsonl", 8)
        figures["killed, .jsonl"] = killed(folder, "out.jsonl", step_ms=10.0, times=(0.05, 0.6))
        # At the same time, because they take minutes and hardly use the processor.
        with ThreadPoolExecutor() as pool:
            later = {
                f"killed, {output[3:]}": pool.submit(killed_later, folder, output)
                for output in ["out.jsonl.gz"] + ["out.jsonl.zst"] * (shutil.which("zstd") is not None)
            }
            restarted = pool.submit(killed_later, folder, "anew.jsonl", "--overwrite")
        figures |= {name: killed_run.result() for name, killed_run in later.items()}
        figures["killed, restarted from the beginning"] = restarted.result()
        for key, figure in figures.items():
            if key.startswith("killed"):
                note(f"{key}: {figure}")
    kept = [figure for name, figure in figures.items() if name.startswith("killed, .")]
    attempts = "attempts at the server for a line"
    # Only these files were killed at the same times as the run that is restarted.
    most = max(killed_run[attempts] for name, killed_run in figures.items() if name in later)
    restart = figures["killed, restarted from the beginning"][attempts]
    bars = [
        bar("wall / the quota's lower bound", figures["quota"]["wall / lower bound"], "<=", 1.05),
        bar("failed lines", figures["quota"]["failed lines"], "<=", 0),
        bar("kills, of each kind of file", min(figure["kills"] for figure in kept), ">=", KILLS),
        bar("lines lost after them", sum(figure["lines lost"] for figure in kept), "<=", 0),
        bar("lines duplicated after them", sum(figure["lines duplicated"] for figure in kept), "<=", 0),
        bar("attempts for a line, of each kind of compressed file", most, "<=", ATTEMPTS_PER_LINE),
        bar("restarted from the beginning: attempts for a line", restart, ">=", ATTEMPTS_PER_LINE),
    ]
    report("run", figures, peers, bars)


sys.exit(main())
