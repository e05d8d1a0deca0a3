"""Fixtures that several test modules use."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import certifi
import pytest
import trustme

import tidegate
from certificate_authority import Authority
from event_loops import LoopWithoutReaders
from upstream import Upstream

# A shell starts background jobs with SIGINT ignored, and child processes inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Authorities that the environment names decide which clients keep their transport. Tests of that set them.
os.environ.pop("SSL_CERT_DIR", None)
os.environ.pop("SSL_CERT_FILE", None)

# Modules whose asynchronous tests also run on a loop without `add_reader`.
ON_EVERY_LOOP = {
    "test_aiohttp",
    "test_cancel",
    "test_custom_transport",
    "test_custom_transport_cancel",
    "test_event_loops",
    "test_openai",
    "test_slot",
    "test_uploads",
}


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Returns the kinds of event loops, by name. An asynchronous test runs once on each kind.

    Tests in the modules of `ON_EVERY_LOOP` run on two kinds, other tests on the default kind only.
    """
    # Virtual time replaces `asyncio.new_event_loop` later.
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "default": lambda: asyncio.new_event_loop(),  # noqa: PLW0108
    }
    if item.path.stem in ON_EVERY_LOOP:
        factories["without_add_reader"] = LoopWithoutReaders
    return factories


@pytest.fixture(autouse=True, scope="session")
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Makes httpx trust only one of certifi's authorities. Loading all takes 20 ms per client."""
    end = "-----END CERTIFICATE-----\n"
    first, _, _ = Path(certifi.where()).read_text().partition(end)
    path = tmp_path_factory.mktemp("certifi") / "cacert.pem"
    path.write_text(first + end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certifi, "where", lambda: str(path))
        yield


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """Runs a server during the test, and yields it. The test sets its `handler`."""
    with Upstream() as server:
        yield server


@pytest.fixture
def gate() -> tidegate.Gate:
    """Returns a gate with default settings."""
    return tidegate.Gate()


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """Returns a new certificate authority. The environment variable SSL_CERT_FILE names its file.

    Clients of httpx and gates that are created during the test therefore trust it.
    """
    made = Authority(trustme.CA(), tmp_path)
    made.ca.cert_pem.write_to_path(str(made.file))
    monkeypatch.setenv("SSL_CERT_FILE", str(made.file))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.delenv("SSLKEYLOGFILE", raising=False)
    return made


@pytest.fixture
def one_attempt(authority: Authority) -> tidegate.Gate:  # noqa: ARG001 - sets the environment
    """Returns a gate that trusts `authority` and makes only one attempt per call."""
    return tidegate.Gate(defaults={"retry": {"attempts": 1}})
