#!/usr/bin/env python3
"""Runs the experiments on vLLM, which it installs below `out/vllm`.

run.py NAME [OPTION...]   runs an experiment, which requests servers
run.py serve PROFILE      serves a profile of engines.json in the foreground
run.py install            only installs

NAME is objective, default, kv, truth, tenants, share, sweep or pool. Options are those of `tidegate-bench
vllm-NAME`. The environment variable TIDEGATE_BENCH is the path of tidegate-bench (default:
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
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
OUT = REPOSITORY / "out" / "vllm"
VENV = Path(os.environ.get("VLLM_VENV", OUT / "venv"))
MODEL = OUT / "model"
BENCH = os.environ.get("TIDEGATE_BENCH", str(REPOSITORY / "target" / "release" / "tidegate-bench"))
ENGINES = json.loads((HERE / "engines.json").read_text())

EXPERIMENTS = ["objective", "default", "kv", "truth", "tenants", "share", "sweep", "pool"]
PORTS = range(8461, 8470)
# vLLM imports its modules and compiles nothing, which takes 16 s on two idle cores.
STARTS_WITHIN_S = 300
STOPS_WITHIN_S = 20
# Time from SIGTERM to SIGKILL, as by default in Kubernetes.
ENDS_WITHIN_S = 30


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
    # vLLM caches prefixes by default.
    cache = [] if engine.get("prefix_cache", True) else ["--no-enable-prefix-caching"]
    # vLLM keeps one block for itself.
    blocks = engine["num_blocks"] + 1
    return [
        *(str(VENV / "bin" / "vllm"), "serve", str(MODEL), "--served-model-name", "tiny"),
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16", "--seed", "0"),
        *("--enforce-eager", "--distributed-executor-backend", "uni", "--disable-uvicorn-access-log"),
        *("--kv-cache-memory-bytes", str(1 << 30), "--num-gpu-blocks-override", str(blocks)),
        *("--block-size", str(engine["block_size"]), "--max-num-seqs", str(engine["max_num_seqs"])),
        *("--max-num-batched-tokens", str(engine["max_num_batched_tokens"])),
        *("--max-model-len", str(engine["max_model_len"]), *cache),
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


def launch(profile: str, port: int) -> subprocess.Popen[bytes]:
    """Starts the server of a profile, and does not wait for it."""
    with log_of(port).open("ab") as output:
        return subprocess.Popen(
            command(profile, port),
            env=environment(profile),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def log_of(port: int) -> Path:
    """Returns the file with the output of the server at a port."""
    return OUT / f"{port}.log"


def ready(profile: str, port: int, server: subprocess.Popen[bytes]) -> str:
    """Waits until a server answers, and returns its URL."""
    url = f"http://127.0.0.1:{port}"
    wait_for(url, server, log_of(port))
    print(f"vLLM serves the profile {profile} at {url}", file=sys.stderr)
    return url


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
        # A stopped process would not end.
        os.killpg(server.pid, signal.SIGCONT)
        server.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(STOPS_WITHIN_S)
    kill(server)


def kill(server: subprocess.Popen[bytes]) -> None:
    """Kills the process group of a server, with children that have outlived it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


class Managed:
    """Servers that an experiment requests, by their URLs, with their profiles and ports.

    Each request is one line, and so is its answer:
        start PROFILE: Starts a server, and answers its URL.
        signal NAME URL: Sends the signal `kill`, `term`, `stop` or `cont` to a server. After `kill`
            and `term`, the server is started again.
        stop URL: Ends a server.
    """

    def __init__(self) -> None:
        """Starts no server."""
        self.servers: dict[str, tuple[str, int, subprocess.Popen[bytes]]] = {}

    def start(self, profile: str) -> str:
        """Starts a server on a free port, and returns its URL."""
        port = next(port for port in PORTS if is_free(port))
        log_of(port).unlink(missing_ok=True)
        server = launch(profile, port)
        # Before the server is ready, so that it is also stopped if it never is.
        self.servers[f"http://127.0.0.1:{port}"] = (profile, port, server)
        return ready(profile, port, server)

    def signal(self, name: str, url: str) -> None:
        """Sends a signal to a server. SIGTERM goes to its main process only, as from Kubernetes."""
        _, _, server = self.servers[url]
        if name == "term":
            server.terminate()
        else:
            os.killpg(server.pid, {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "cont": signal.SIGCONT}[name])

    def restart(self, url: str) -> None:
        """Waits until a server has ended, and starts it again."""
        profile, port, server = self.servers[url]
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(ENDS_WITHIN_S)
        kill(server)
        self.servers[url] = (profile, port, launch(profile, port))

    def stop(self, url: str) -> None:
        """Ends a server."""
        _, _, server = self.servers.pop(url)
        stop(server)

    def stop_all(self) -> None:
        """Ends all servers."""
        for url in list(self.servers):
            self.stop(url)


def measure(name: str, options: list[str]) -> int:
    """Runs an experiment, starts the servers that it requests, and returns its exit code."""
    managed = Managed()
    bench = subprocess.Popen(
        [BENCH, f"vllm-{name}", "--managed", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert bench.stdin
    assert bench.stdout

    def answer(text: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            print(text, file=bench.stdin, flush=True)

    try:
        for line in bench.stdout:
            match line.split():
                case ["start", profile]:
                    answer(managed.start(profile))
                case ["signal", signal_name, url]:
                    managed.signal(signal_name, url)
                    # The experiment goes on meanwhile.
                    answer("sent")
                    if signal_name in ("kill", "term"):
                        managed.restart(url)
                case ["stop", url]:
                    managed.stop(url)
                    answer("stopped")
                case _:
                    print(line, end="", flush=True)
        return bench.wait()
    finally:
        bench.kill()
        bench.wait()
        managed.stop_all()


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
