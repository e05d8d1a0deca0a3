"""The pytest plugin of Tidegate: fixtures and a marker for `tidegate.testing`.

`tidegate` itself is imported only by tests that use the fixtures or the marker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.testing import FakeTarget, VirtualClock

_MARKER = "tidegate(virtual_time=False, seed=0): run on Tidegate's virtual time, with this seed for jitter of backoffs."


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker `tidegate` with pytest."""
    config.addinivalue_line("markers", _MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Makes `tidegate_clock` the first fixture of each test marked with `virtual_time=True`.

    Virtual time is thus installed before any other fixture creates an event loop.
    """
    marker = item.get_closest_marker("tidegate")
    names = getattr(item, "fixturenames", None)
    if (
        marker is not None
        and marker.kwargs.get("virtual_time")
        and names is not None
        and "tidegate_clock" not in names[:1]
    ):
        # A new list, because pytest shares the old one between the parameter sets of a test.
        item.fixturenames = ["tidegate_clock", *names]  # type: ignore[attr-defined]


@pytest.fixture
def tidegate_clock(request: pytest.FixtureRequest) -> Iterator[VirtualClock]:
    """Installs virtual time during the test. Event loops that the test creates run on it.

    For asynchronous tests, use the marker `@pytest.mark.tidegate(virtual_time=True)`, with or
    without this fixture, because the clock must be installed before the event loop of the test is
    created.
    """
    import asyncio  # noqa: PLC0415 - imported only in runs that use it

    from tidegate.testing import VirtualClock  # noqa: PLC0415 - imported only in runs that use it

    marker = request.node.get_closest_marker("tidegate")
    seed = 0 if marker is None else marker.kwargs.get("seed", 0)
    with VirtualClock(seed=seed) as clock, pytest.MonkeyPatch.context() as patch:
        # asyncio.Runner, and therefore each plugin for asynchronous tests, calls these functions.
        patch.setattr(asyncio.events, "new_event_loop", clock.new_event_loop)
        patch.setattr(asyncio, "new_event_loop", clock.new_event_loop)
        yield clock


@pytest.fixture
def tidegate_target() -> Iterator[FakeTarget]:
    """Installs a fake target during the test.

    It answers every request with `ok()` until the test calls `script`.
    """
    from tidegate.testing import FakeTarget  # noqa: PLC0415 - imported only in runs that use it

    with FakeTarget().installed() as target:
        yield target
