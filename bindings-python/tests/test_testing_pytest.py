"""Tests of the pytest plugin, which is loaded as in the test suite of a user."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import openai
import pytest

import tidegate
from provider_payloads import MESSAGES
from tidegate.testing import FakeTarget, VirtualClock, ok, rate_limited

# A gate and a client that are created on import, as in users' modules.
gate = tidegate.Gate(targets={"small": 4})
client = gate.wrap(openai.AsyncOpenAI(base_url="https://models.example.com/v1", api_key="k"))


async def agent() -> str | None:
    completion = await client.chat.completions.create(model="small", messages=MESSAGES)
    return completion.choices[0].message.content


@pytest.mark.tidegate(virtual_time=True)
async def test_marked_test_under_pytest_asyncio_is_on_virtual_time(tidegate_target: FakeTarget) -> None:
    tidegate_target.script(rate_limited(90), ok("hi"))
    assert await agent() == "hi"
    await asyncio.sleep(3600)
    assert asyncio.get_running_loop().time() >= 3690
    assert tidegate_target.calls[0].statuses == [429, 200]


async def test_unmarked_test_is_on_real_time(tidegate_target: FakeTarget) -> None:
    assert await agent() == "ok"
    assert len(tidegate_target.attempts) == 1, "nothing is left of other tests"
    assert gate.snapshot()["targets"]["small"]["in_flight"] == 0


def test_fixture_gives_a_plain_test_the_clock(tidegate_clock: VirtualClock, tidegate_target: FakeTarget) -> None:
    tidegate_target.script(rate_limited(90), ok("hi"))
    assert tidegate_clock.run(agent()) == "hi"
    assert tidegate_clock.time() >= 90
    assert asyncio.run(agent()) == "ok", "loops that are made meanwhile run on it too"


ANYIO = """
import anyio
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
@pytest.mark.tidegate(virtual_time=True, seed=3)
async def test_sleep(tidegate_clock, tidegate_target):
    with anyio.fail_after(7200):
        await anyio.sleep(3600)
    assert tidegate_clock.time() >= 3600
"""


@pytest.mark.skipif(sys.platform == "win32", reason="spawns a pytest of its own")
def test_marked_test_under_anyio_is_on_virtual_time(tmp_path: object) -> None:
    (file := tmp_path / "test_anyio.py").write_text(ANYIO)  # type: ignore[operator, union-attr]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "--strict-markers", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_unused_plugin_does_not_import_the_package() -> None:
    program = "import sys, tidegate_pytest; print('tidegate' in sys.modules, 'asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split()[0] == "False"
