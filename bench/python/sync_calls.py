"""Calls with the gate's synchronous httpx2 client, one after the other.

Prints the CPU time per call in microseconds, of the process with its threads. `bench_python.py` runs
this program with two versions of the package.

    python sync_calls.py URL CALLS
"""

from __future__ import annotations

import json
import sys
from time import process_time

import tidegate
from experiment_support import MESSAGES

BODY = json.dumps({"model": "small", "messages": MESSAGES}).encode()
HEADERS = {"content-type": "application/json"}


def main() -> None:
    """Reads the command line, measures, and prints the result."""
    url, calls = f"{sys.argv[1]}/v1/chat/completions", int(sys.argv[2])
    with tidegate.Gate(defaults={"cap": 1024}).httpx_client(family="httpx2", timeout=None) as client:
        for _ in range(200):
            client.post(url, content=BODY, headers=HEADERS)
        used = process_time()
        for _ in range(calls):
            client.post(url, content=BODY, headers=HEADERS)
        print((process_time() - used) / calls * 1e6)  # noqa: T201


if __name__ == "__main__":
    main()
