"""Programs that tests run in processes of their own."""

from __future__ import annotations

import subprocess
import sys

from upstream import WAIT, Upstream


def start(upstream: Upstream, script: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts a Python program whose arguments are the URL of the upstream and `arguments`."""
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", script, upstream.url, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Waits for the end of a program, which must succeed, and returns its output."""
    out, err = process.communicate(timeout=2 * WAIT)
    assert process.returncode == 0, err
    return out
