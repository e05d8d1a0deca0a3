"""Tests of what the gates log."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
import uuid
from typing import Any

import pytest

import tidegate
from provider_payloads import CHAT, MESSAGES
from upstream import WAIT, Exchange, Upstream, answer

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


def wait_for_message(caplog: pytest.LogCaptureFixture, count: int = 1) -> tuple[int, str]:
    """Waits for the line of the log with the number `count`, counted from 1, which another thread writes."""
    give_up_at = time.monotonic() + WAIT
    while len(messages(caplog)) < count:
        assert time.monotonic() < give_up_at
        time.sleep(0.001)
    return messages(caplog)[count - 1]


def test_store_that_is_not_reached_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidegate")
    gate = tidegate.Gate(tools={"db": 2}, share="redis://127.0.0.1:1")
    with gate.tool("db"):
        level, text = wait_for_message(caplog)
    assert level == logging.WARNING
    assert "the store of shared limits is lost" in text
    assert "redis://127.0.0.1:1" in text


def test_outage_is_logged_once_when_it_begins_and_once_when_it_ends(
    caplog: pytest.LogCaptureFixture, upstream: Upstream
) -> None:
    async def fail_four_times_after_the_first_call(exchange: Exchange) -> None:
        is_down = 1 < len(upstream.exchanges) < 6
        await answer({} if is_down else CHAT, status=503 if is_down else 200)(exchange)

    caplog.set_level(logging.INFO, "tidegate")
    upstream.handler = fail_four_times_after_the_first_call
    target: Any = {"cap": 4, "url": upstream.url, "metrics": "off", "retry": {"base": "1ms"}}
    gate = tidegate.Gate(targets={"flaky": target}, share="off")
    with gate.httpx_client(base_url=upstream.url) as http:
        for _ in range(2):
            response = http.post("/v1/chat/completions", json={"model": "small", "messages": MESSAGES})
            assert response.status_code == 200
    assert len(upstream.exchanges) == 6
    level, text = wait_for_message(caplog, 2)
    assert (level, text) == (logging.INFO, "the outage of the target is over target=flaky")
    level, text = messages(caplog)[0]
    assert level == logging.WARNING
    assert text.startswith("an outage of the target begins: its last calls failed (status 503)")
    assert text.endswith("target=flaky")
    assert len(messages(caplog)) == 2


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
            assert (level, "another process of this user" in text) == (logging.WARNING, True)
        neighbour.communicate(timeout=WAIT)
    assert len(messages(caplog)) == (1 if share == "auto" else 0)
