"""The pytest plugin of Tidegate: fixtures and a marker over `tidegate.testing`, imported only where they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.testing import FakeTarget, VirtualClock

_MARKER = "tidegate(virtual_time=False, seed=0): on Tidegate's virtual time; the jitter of backoffs has that seed."


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", _MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Put virtual time in place before any other fixture makes an event loop."""
    marker = item.get_closest_marker("tidegate")
    names = getattr(item, "fixturenames", None)
    if (
        marker is not None
        and marker.kwargs.get("virtual_time")
        and names is not None
        and "tidegate_clock" not in names[:1]
    ):
        names.insert(0, "tidegate_clock")


@pytest.fixture
def tidegate_clock(request: pytest.FixtureRequest) -> Iterator[VirtualClock]:
    """Put virtual time in place for the length of the test: event loops made meanwhile run on it.

    For asynchronous tests use the marker `@pytest.mark.tidegate(virtual_time=True)`, beside this fixture or without it:
    it sees to it that the clock is there before the test's event loop.
    """
    import asyncio  # noqa: PLC0415 - not in runs that do not use it

    from tidegate.testing import VirtualClock  # noqa: PLC0415 - not in runs that do not use it

    marker = request.node.get_closest_marker("tidegate")
    seed = 0 if marker is None else marker.kwargs.get("seed", 0)
    with VirtualClock(seed=seed) as clock, pytest.MonkeyPatch.context() as patch:
        # What asyncio.Runner calls, and with it the plugins for asynchronous tests.
        patch.setattr(asyncio.events, "new_event_loop", clock.new_event_loop)
        patch.setattr(asyncio, "new_event_loop", clock.new_event_loop)
        yield clock


@pytest.fixture
def tidegate_target() -> Iterator[FakeTarget]:
    """Put a fake target in place of the network, for every gate: well-behaved until the test scripts it."""
    from tidegate.testing import FakeTarget  # noqa: PLC0415 - not in runs that do not use it

    with FakeTarget().installed() as target:
        yield target
