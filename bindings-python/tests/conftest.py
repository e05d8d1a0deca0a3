"""Fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tidegate
from upstream import Upstream


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """Return a server to script."""
    with Upstream() as server:
        yield server


@pytest.fixture
def gate() -> tidegate.Gate:
    """Return a gate with every default."""
    return tidegate.Gate()
