"""Tests of what the gates log."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
import uuid

import pytest

import tidegate
from upstream import WAIT

# Holds a gate until its input ends.
NEIGHBOUR = """
import sys, tidegate
gate = tidegate.Gate(tools={sys.argv[1]: 3})
print("ready", flush=True)
sys.stdin.read()
"""


def messages(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """Returns the levels and texts of what was logged."""
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.name == "tidegate"]


def wait_for_message(caplog: pytest.LogCaptureFixture) -> tuple[int, str]:
    """Waits for the first line of the log, which another thread writes."""
    give_up_at = time.monotonic() + WAIT
    while not messages(caplog):
        assert time.monotonic() < give_up_at
        time.sleep(0.001)
    return messages(caplog)[0]


def test_store_that_is_not_reached_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidegate")
    gate = tidegate.Gate(tools={"db": 2}, share="redis://127.0.0.1:1")
    with gate.tool("db"):
        level, text = wait_for_message(caplog)
    assert level == logging.WARNING
    assert "the store of shared limits is lost" in text
    assert "redis://127.0.0.1:1" in text


@pytest.mark.skipif(sys.platform != "linux", reason="needs abstract sockets")
@pytest.mark.parametrize("share", ["auto", "off"])
def test_process_with_the_same_caps_is_logged(caplog: pytest.LogCaptureFixture, share: str) -> None:
    caplog.set_level(logging.INFO, "tidegate")
    tool = f"tool-{uuid.uuid4().hex}"
    with subprocess.Popen(
        [sys.executable, "-c", NEIGHBOUR, tool], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as neighbour:
        assert neighbour.stdout is not None
        assert neighbour.stdout.readline() == "ready\n"
        tidegate.Gate(tools={tool: 3}, share=share)
        tidegate.Gate(tools={tool: 4})
        if share == "auto":
            level, text = wait_for_message(caplog)
            assert (level, "another process of this user" in text) == (logging.INFO, True)
        neighbour.communicate(timeout=WAIT)
    assert len(messages(caplog)) == (1 if share == "auto" else 0)
