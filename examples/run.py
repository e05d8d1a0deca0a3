"""Runs every example against the simulator, and most of them against a failing server.

Against the failing server, each example must end with a failure status, and each call must have as
many attempts as the gate makes. Fewer attempts would mean that the example bypasses the gate, and
more that a retry loop above the gate adds some. Examples may connect to loopback only. The Python
examples of the given environments run, and with `--node` those for Node. The status is 0 if all
examples pass.

    python run.py --tidegate target/debug/tidegate --environment NAME=PYTHON ... [PROGRAM ...]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, NamedTuple

from bedrock_server import bedrock_server
from failing_server import failing_server
from ollama_server import ollama_server

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
MODELS = ("gpt-4o-mini", "claude-haiku-4-5", "gemini-2.5-flash")
#: The simulator's settings. The limits are higher than the examples need. The rates appear in the
#: response headers; mem0's prompt has 8,500 tokens.
SIMULATOR = {
    "engine": {"max_model_len": 16_384},
    "faults": {"token_rate": {"tokens_per_minute": 10_000_000, "requests_per_minute": 100_000}},
}
#: Seconds. Longer than any example takes on a slow machine.
LIMIT = 300
#: Default number of attempts of a gate.
#: Exceptions: a slot of a target is for one attempt. If many calls fail at once, the retry budget
#: limits their attempts, and Node exits at the first call without one.
ATTEMPTS = range(4, 5)
ATTEMPTS_OF = {
    "find_the_cap.py": range(1, 5),
    "slot_by_name.py": range(1, 2),
    "batch_map.py": range(1, 5),
    "openai_async.py": range(2, 5),
    "pool.py": range(1, 5),
    "pool.mjs": range(1, 5),
    "tenant_shares.py": range(2, 5),
    "agent.mjs": range(2, 5),
    "batch-map.mjs": range(1, 5),
    "tenant-shares.mjs": range(1, 5),
}
#: The folder of the modules that end an example if it connects to another machine.
LOOPBACK = HERE.absolute() / "loopback"
#: The exit status of these modules.
NOT_LOOPBACK = 70
#: Programs that run at once. They wait half of the time.
PARALLEL = 4

#: The environments in which each example runs.
EITHER, OPENAI_3, OPENAI_2 = ("openai3", "openai2"), ("openai3",), ("openai2",)
#: The environments of `make test-frameworks`, whose packages are too large for `make test`.
MORE, MORE_OPENAI_2 = ("more",), ("more-openai2",)
ENVIRONMENTS = {*EITHER, *MORE, *MORE_OPENAI_2}
RUNS_IN = {
    "ag2_agent.py": MORE,
    "aiohttp_session.py": MORE,
    "anthropic_stream.py": OPENAI_3,
    "anthropic_sync.py": OPENAI_3,
    "batch_map.py": EITHER,
    "boto3_bedrock.py": MORE,
    "budgets.py": EITHER,
    "crewai_crew.py": MORE_OPENAI_2,
    "dspy_program.py": MORE_OPENAI_2,
    "find_the_cap.py": EITHER,
    "google_genai_client.py": OPENAI_3,
    "groq_chat.py": MORE,
    "guidance_program.py": MORE,
    "haystack_generator.py": MORE,
    "httpx2_stream.py": OPENAI_3,
    "httpx_plain.py": EITHER,
    "huggingface_chat.py": MORE,
    "langchain_chat.py": OPENAI_3,
    "litellm_completion.py": OPENAI_2,
    "llama_index_chat.py": OPENAI_2,
    "mem0_memory.py": MORE,
    "mistral_chat.py": MORE,
    "ollama_chat.py": MORE,
    "one_objective.py": EITHER,
    "openai_agents_runner.py": OPENAI_3,
    "openai_async.py": EITHER,
    "openai_responses.py": EITHER,
    "openai_stream.py": EITHER,
    "openai_sync.py": EITHER,
    "pool.py": EITHER,
    "pydantic_ai_agent.py": OPENAI_3,
    "requests_session.py": MORE,
    "semantic_kernel_chat.py": MORE,
    "slot_by_name.py": OPENAI_3,
    "smolagents_model.py": MORE,
    "tenant_shares.py": EITHER,
    "testing_agents.py": EITHER,
    "together_chat.py": MORE,
    "tool_in_stream.py": EITHER,
    "tool_caps.py": OPENAI_3,
}
#: Examples that call no model.
NO_CALLS = ("tool_caps.py", "testing_agents.py", "testing.mjs", "adaptive_limit")


class Run(NamedTuple):
    """One example in one environment: its name, and the command that runs it."""

    name: str
    command: list[str]

    @property
    def file(self) -> str:
        """The file name of the example."""
        return Path(self.command[-1]).name


class Servers(NamedTuple):
    """URLs of the servers that the examples call.

    `base_url` ends with `/v1` and serves the APIs that the simulator speaks. `ollama` serves ollama's
    own API, and `bedrock` that of Amazon Bedrock.
    """

    base_url: str
    ollama: str
    bedrock: str


class Outcome(NamedTuple):
    """The result of running one example: whether it passed, and lines of its output to print."""

    run: Run
    passed: bool
    output: list[str]


def main() -> int:
    """Runs the examples against the simulator and a failing server. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tidegate", required=True, help="the command whose `sim` serves the models")
    parser.add_argument("--environment", action="append", default=[], metavar="NAME=PYTHON", help="where examples run")
    parser.add_argument("--node", help="what runs the programs for Node; without it, they do not run")
    parser.add_argument("--node-folder", default="node", help="the folder of the programs for Node; default: node")
    parser.add_argument("programs", nargs="*", help="examples already built")
    args = parser.parse_args()
    runs = python_runs(dict(given.split("=", 1) for given in args.environment))
    files = sorted((HERE / args.node_folder).glob("*.mjs")) if args.node else []
    programs = [Run(path.name, [args.node, str(path.absolute())]) for path in files]
    programs += [Run(Path(path).name, [str(Path(path).absolute())]) for path in args.programs]
    calling = [run for run in runs + programs if run.file not in NO_CALLS]
    with ThreadPoolExecutor(PARALLEL) as pool:
        with simulator(args.tidegate) as base_url, ollama_server() as ollama, bedrock_server() as bedrock:
            servers = Servers(base_url, ollama, bedrock)
            results = pool.map(lambda run: passes(run, servers), runs + programs)
            outcomes = [reported(outcome) for outcome in results]
        print("with every call failing:")
        outcomes += [reported(outcome) for outcome in pool.map(fails_within_limits, calling)]
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def python_runs(pythons: dict[str, str]) -> list[Run]:
    """Returns a run of each Python example in each of the given environments that it supports.

    `pythons` has the path of the Python interpreter of each environment, by the environment's name.
    """
    files = {path.name: path for path in (HERE / "python").glob("*.py")}
    if files.keys() != RUNS_IN.keys():
        sys.exit(f"RUNS_IN and examples/python differ: {sorted(files.keys() ^ RUNS_IN.keys())}")
    if unknown := pythons.keys() - ENVIRONMENTS:
        sys.exit(f"--environment {', '.join(unknown)}: the environments are {', '.join(sorted(ENVIRONMENTS))}")
    return [
        Run(f"{name} ({where})", [str(Path(pythons[where]).absolute()), str(files[name].absolute())])
        for name, places in sorted(RUNS_IN.items())
        for where in places
        if where in pythons
    ]


@contextmanager
def simulator(tidegate: str) -> Iterator[str]:
    """Runs the simulator, and yields its base URL, which ends with `/v1`."""
    with NamedTemporaryFile("w", suffix=".json", delete=False) as config:
        json.dump(SIMULATOR, config)
    options = ["--listen", "127.0.0.1:0", "--json", "--time-scale", "20", "--config", config.name]
    for model in MODELS:
        options += ["--model", model]
    process = subprocess.Popen([tidegate, "sim", *options], stdout=subprocess.PIPE, text=True)
    try:
        ready = process.stdout.readline() if process.stdout else ""
        yield json.loads(ready)["base_url"]
    finally:
        process.terminate()
        process.wait(timeout=10)
        Path(config.name).unlink()


def run_once(run: Run, servers: Servers) -> subprocess.CompletedProcess[str]:
    """Runs one example to its end against these servers.

    Returns the completed process, with its exit status and its output.

    The example runs in the directory `/`, because it must not depend on the current directory.
    """
    base_url, origin = servers.base_url, servers.base_url.removesuffix("/v1")
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_BASE": base_url,
        "OPENAI_API_KEY": "sk-none",
        "ANTHROPIC_BASE_URL": origin,
        "ANTHROPIC_API_KEY": "sk-ant-none",
        "GOOGLE_GEMINI_BASE_URL": origin,
        "GEMINI_API_KEY": "none",
        "GEMINI_API_BASE": f"{origin}/v1beta",
        "HOSTED_VLLM_API_BASE": base_url,
        # Groq's client appends its own path, /openai/v1/chat/completions, here to the query.
        "GROQ_BASE_URL": f"{base_url}/chat/completions?path=",
        "GROQ_API_KEY": "none",
        "HF_BASE_URL": base_url,
        "HF_TOKEN": "none",
        "MISTRAL_BASE_URL": origin,
        "MISTRAL_API_KEY": "none",
        "TOGETHER_BASE_URL": origin,
        "TOGETHER_API_KEY": "none",
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": servers.bedrock,
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
        # Where mem0 writes as it is imported, which is otherwise the home directory.
        "MEM0_DIR": str(HERE.parent.absolute() / "out" / "mem0"),
        "OLLAMA_HOST": servers.ollama,
        "CREWAI_DISABLE_TELEMETRY": "true",
        "OTEL_SDK_DISABLED": "true",
        "PYTHONPATH": str(LOOPBACK),
        "NODE_OPTIONS": f"--require={LOOPBACK / 'loopback.cjs'}",
        # LiteLLM looks up prices on the network as it is imported, unless told not to.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    return subprocess.run(
        run.command, env=environment, cwd="/", capture_output=True, text=True, timeout=LIMIT, check=False
    )


def passes(run: Run, servers: Servers) -> Outcome:
    """Runs one example against servers that work. The outcome is passed if the exit status is 0."""
    done = run_once(run, servers)
    output = [line for line in (done.stdout + done.stderr).splitlines() if line]
    passed = done.returncode == 0
    return Outcome(run, passed, output[-2:] if passed else output)


def fails_within_limits(run: Run) -> Outcome:
    """Runs one example against the failing server.

    The outcome is passed if the example ends with an error (but not because it connected to another
    machine), and if the largest number of attempts of a call is the expected one.
    """
    with failing_server() as (url, attempts):
        done = run_once(run, Servers(f"{url}/v1", url, url))
    most = max(attempts.values(), default=0)
    passed = done.returncode not in {0, NOT_LOOPBACK} and most in ATTEMPTS_OF.get(run.file, ATTEMPTS)
    output = f"exit status {done.returncode}, at most {most} attempts of a call"
    return Outcome(run, passed, [output] if passed else [*done.stderr.splitlines(), output])


def reported(outcome: Outcome) -> Outcome:
    """Prints the result of one example, and returns it."""
    print(f"{'passed' if outcome.passed else 'FAILED'}  {outcome.run.name}")
    print("".join(f"        {line[:200]}\n" for line in outcome.output), end="", flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
