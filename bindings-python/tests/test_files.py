"""Tests of files that users name: regular files, up to a limit, read without the GIL."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tidegate

LIMIT = 16 << 20


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Path]:
    """Yields the path of a FIFO to which another process writes a URL when the FIFO is opened."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with subprocess.Popen(["sh", "-c", f"echo http://127.0.0.1:9 > '{path}'"]) as writer:
        yield path
        writer.kill()


def test_configuration_from_a_fifo_is_rejected(fifo: Path) -> None:
    with pytest.raises(tidegate.ConfigError, match=r"fifo: cannot be read: it is a FIFO or pipe; name a regular file"):
        tidegate.Gate.from_file(fifo)


async def test_replicas_are_not_read_from_a_fifo(fifo: Path) -> None:
    gate = tidegate.Gate(targets={"llama": {"pool": {"file": str(fifo)}}})
    with pytest.raises(tidegate.Refused, match="it is a FIFO or pipe; name a regular file"):
        gate.slot("llama", deadline=0.05).__enter__()


def test_directories_and_devices_are_rejected_as_configuration(tmp_path: Path) -> None:
    for path, kind in ((tmp_path, "a directory"), (Path("/dev/zero"), "a device")):
        assert not stat.S_ISREG(path.stat().st_mode)
        with pytest.raises(tidegate.ConfigError, match=f"{path}: cannot be read: it is {kind}; name a regular file"):
            tidegate.Gate.from_file(path)


def test_configuration_above_the_size_limit_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "tidegate.toml"
    text = b"[tools]\ndb = 8\n#"
    path.write_bytes(text + b"x" * (LIMIT - len(text)))
    assert tidegate.Gate.from_file(path).snapshot()["tools"]["db"]["limit"] == 8
    with path.open("ab") as file:
        file.write(b"x")
    with pytest.raises(tidegate.ConfigError, match=r"tidegate\.toml: is larger than 16 MiB"):
        tidegate.Gate.from_file(path)


def releases_the_gil(call: Callable[[], object]) -> bool:
    """Returns `True` if another thread ran Python code during one of up to 100 calls.

    The other thread can run only if the call releases the GIL. On a busy machine, one call may be
    over before the other thread gets a processor, so several are made.
    """
    return any(others_ran_during(call) for _ in range(100))


def others_ran_during(call: Callable[[], object]) -> bool:
    """Returns `True` if another thread ran Python code during the call."""
    begun, go, ran = threading.Event(), threading.Event(), threading.Event()

    def other() -> None:
        begun.set()
        go.wait()
        ran.set()

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1_000)
    try:
        go.set()
        call()
        return ran.is_set()
    finally:
        sys.setswitchinterval(interval)
        thread.join()


def test_other_threads_run_while_a_configuration_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tidegate.toml"
    path.write_text("[tools]\n" + "".join(f"t{n} = 8\n" for n in range(5_000)))
    # A configuration with a mistake is read, and opens no gate.
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(path.read_text() + "t = 0\n")

    def read_wrong() -> None:
        with pytest.raises(tidegate.ConfigError):
            tidegate.Gate.from_file(wrong)

    assert releases_the_gil(read_wrong)
    assert releases_the_gil(lambda: tidegate.Gate.from_file(path))


def test_other_threads_run_while_replicas_are_read(tmp_path: Path) -> None:
    path = tmp_path / "replicas"
    path.write_text("".join(f"http://10.0.{n // 250}.{n % 250}:8000\n" for n in range(20_000)))
    assert releases_the_gil(lambda: tidegate.Gate(targets={"llama": {"pool": {"file": str(path)}}}))


def test_twenty_thousand_targets_are_checked_quickly() -> None:
    # `config::matching::coverage` tests that targets are not compared in pairs.
    url = "https://models.example/v1"
    targets = {f"t{n}": {"url": url, "models": [f"m{n}", f"m{n}-*"]} for n in range(20_000)}
    last = {"url": f"{url}/sub", "models": "m7-x"}
    with pytest.raises(tidegate.ConfigError, match=r"targets\.last: no request reaches it, because targets\.t7 above"):
        tidegate.Gate(targets={**targets, "last": last})
