"""Fixtures."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

import tidegate
from upstream import Upstream

# A shell that runs this in the background has it ignore Ctrl-C, and with it every process that is started from here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """Return a server to script."""
    with Upstream() as server:
        yield server


@pytest.fixture
def gate() -> tidegate.Gate:
    """Return a gate with every default."""
    return tidegate.Gate()
