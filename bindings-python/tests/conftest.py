"""Fixtures that several test modules use."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator

import pytest

import tidegate
from event_loops import LoopWithoutReaders
from upstream import Upstream

# A shell starts background jobs with SIGINT ignored, and child processes inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# With SSL_CERT_DIR, each client keeps its own transport. Tests of that set the variable themselves.
os.environ.pop("SSL_CERT_DIR", None)

# Modules whose asynchronous tests also run on a loop without `add_reader`.
ON_EVERY_LOOP = {
    "test_cancel",
    "test_custom_transport",
    "test_custom_transport_cancel",
    "test_loops",
    "test_openai",
    "test_slot",
    "test_uploads",
}


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Returns the factories of the event loops that a test runs on."""
    # Virtual time replaces `asyncio.new_event_loop` later.
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "default": lambda: asyncio.new_event_loop(),  # noqa: PLW0108
    }
    if item.path.stem in ON_EVERY_LOOP:
        factories["without_add_reader"] = LoopWithoutReaders
    return factories


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """Returns a scripted server."""
    with Upstream() as server:
        yield server


@pytest.fixture
def gate() -> tidegate.Gate:
    """Returns a gate with default settings."""
    return tidegate.Gate()
