#!/usr/bin/env python3
"""Runs the experiments on vLLM, which it installs below `out/vllm`.

run.py NAME [OPTION...]   starts the servers of the experiment, runs it, and stops the servers
run.py serve PROFILE      serves a profile of engines.json in the foreground
run.py install            only installs

NAME is objective, default, kv or truth. Options are those of `tidegate-bench vllm-NAME`. The
environment variable TIDEGATE_BENCH is the path of tidegate-bench (default:
target/release/tidegate-bench), and VLLM_VENV that of an environment to use instead of installing.
"""

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
OUT = REPOSITORY / "out" / "vllm"
VENV = Path(os.environ.get("VLLM_VENV", OUT / "venv"))
MODEL = OUT / "model"
BENCH = os.environ.get("TIDEGATE_BENCH", str(REPOSITORY / "target" / "release" / "tidegate-bench"))
ENGINES = json.loads((HERE / "engines.json").read_text())

# The profiles that each experiment needs, in the order of its `--server` options.
EXPERIMENTS = {"objective": ["queue"], "default": ["queue"], "kv": ["kv"], "truth": ["queue", "kv"]}
PORTS = range(8461, 8470)
# vLLM imports its modules and compiles nothing, which takes 16 s on two idle cores.
STARTS_WITHIN_S = 300
STOPS_WITHIN_S = 20


def install() -> None:
    """Installs vLLM and makes the model, unless the same recipe has done so before."""
    files = ["setup.sh", "constraints.txt", "make_model.py", "steptime/steptime.py"]
    recipe = hashlib.sha256(b"".join((HERE / file).read_bytes() for file in files)).hexdigest()
    stamp = OUT / "installed"
    if stamp.exists() and stamp.read_text() == recipe and (VENV / "bin" / "vllm").exists():
        return
    OUT.mkdir(parents=True, exist_ok=True)
    if "VLLM_VENV" not in os.environ:
        print(f"Installing vLLM in {VENV} (6 GB).", file=sys.stderr)
        subprocess.run(["bash", HERE / "setup.sh", VENV], check=True, stdout=sys.stderr)
    subprocess.run([VENV / "bin" / "python", HERE / "make_model.py", MODEL], check=True, stdout=sys.stderr)
    stamp.write_text(recipe)


def command(profile: str, port: int) -> list[str]:
    """Returns the command that serves a profile."""
    engine = ENGINES[profile]
    # vLLM keeps one block for itself.
    blocks = engine["num_blocks"] + 1
    return [
        *(str(VENV / "bin" / "vllm"), "serve", str(MODEL), "--served-model-name", "tiny"),
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16", "--seed", "0"),
        *("--enforce-eager", "--distributed-executor-backend", "uni", "--disable-uvicorn-access-log"),
        *("--kv-cache-memory-bytes", str(1 << 30), "--num-gpu-blocks-override", str(blocks)),
        *("--block-size", str(engine["block_size"]), "--max-num-seqs", str(engine["max_num_seqs"])),
        *("--max-num-batched-tokens", str(engine["max_num_batched_tokens"])),
        *("--max-model-len", str(engine["max_model_len"])),
    ]


def environment(profile: str) -> dict[str, str]:
    """Returns the environment of a server, which sets its step times."""
    step = ENGINES[profile]["step"]
    return {
        **os.environ,
        "STEPTIME_BASE_MS": str(step["base_ms"]),
        "STEPTIME_SEQ_MS": str(step["per_sequence_ms"]),
        "STEPTIME_TOKEN_US": str(1_000 * step["per_prompt_token_ms"]),
        # Nothing is fetched or reported.
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_LOGGING_LEVEL": "WARNING",
        # By default another process would spin on a whole core.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "OMP_NUM_THREADS": "1",
    }


@contextlib.contextmanager
def served(profile: str) -> Iterator[str]:
    """Starts a server on a free port, and yields its URL. Stops the server in any case."""
    port = next(port for port in PORTS if is_free(port))
    log = OUT / f"{profile}.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command(profile, port),
            env=environment(profile),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(url, server, log)
        print(f"vLLM serves the profile {profile} at {url}", file=sys.stderr)
        yield url
    finally:
        stop(server)


def is_free(port: int) -> bool:
    """Returns whether nothing listens on a port of the loopback interface."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until a server answers. Raises an error if it ends, or does not answer in time."""
    # Loopback addresses need no proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    by = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < by:
        if server.poll() is not None:
            raise SystemExit(f"vLLM ended with exit code {server.returncode}; see {log}")
        try:
            with opener.open(f"{url}/version", timeout=5) as answer:
                print(f"vLLM {json.load(answer)['version']}", file=sys.stderr)
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit(f"vLLM did not answer within {STARTS_WITHIN_S} s; see {log}")


def stop(server: subprocess.Popen[bytes]) -> None:
    """Interrupts a server, and kills its process group if it does not end in time."""
    with contextlib.suppress(ProcessLookupError):
        server.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(STOPS_WITHIN_S)
        # Also ends children that have outlived the server.
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def measure(name: str, options: list[str]) -> int:
    """Runs an experiment, and returns its exit code."""
    with contextlib.ExitStack() as servers:
        urls = [servers.enter_context(served(profile)) for profile in EXPERIMENTS[name]]
        arguments = [part for url in urls for part in ("--server", url)]
        return subprocess.run([BENCH, f"vllm-{name}", *arguments, *options], check=False).returncode


def main() -> int:
    """Does what the arguments say, and returns the exit code."""
    name, *options = sys.argv[1:] or ["help"]
    # Also stops the servers if this process is terminated.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if name == "install":
        install()
    elif name == "serve" and len(options) == 1 and options[0] in ENGINES:
        install()
        port = next(port for port in PORTS if is_free(port))
        print(f"http://127.0.0.1:{port}", file=sys.stderr)
        serve = command(options[0], port)
        os.execve(serve[0], serve, environment(options[0]))
    elif name in EXPERIMENTS:
        install()
        return measure(name, options)
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
