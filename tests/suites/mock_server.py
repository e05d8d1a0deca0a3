"""Runs the mock server that the SDKs' own test suites need.

The server answers as the API's specification says.
"""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: The path of the specification in checkouts of OpenAI's SDKs.
SPECIFICATION = "api_reference/openapi.transformed.yml"
_FORMATS = [f"--validator-{part}-{kind}-format=brackets" for part in ("query", "form") for kind in ("array", "object")]


@contextmanager
def serving(checkout: Path, place: Path, specification: str | Path, node: str | Path = "node") -> Iterator[str]:
    """Runs the mock server on a free port during a `with` block, and yields its URL.

    `place` is the folder in which the server (`@stdy/cli`) is installed and writes its log. The path
    of the `specification` is relative to the checkout. `node` is the command that runs the server.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    command = [node, place / "node_modules/.bin/steady", "--host", "127.0.0.1", "-p", str(port)]
    with (place / "mock.log").open("w") as log:
        server = subprocess.Popen([*command, *_FORMATS, specification], cwd=checkout, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        _await(f"{url}/_x-steady/health", server)
        yield url
    finally:
        server.terminate()
        server.wait(30)


def _await(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=1).close()  # noqa: S310 - our own server
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the mock server did not start; see .suite/mock.log in the checkout")
