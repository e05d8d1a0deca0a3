"""A pytest plugin that puts a gate under every httpx client of a test suite.

Load it with `-p gate_plugin`. The variable `TIDEGATE_SUITE_RUN` selects one of `RUNS`, and
`TIDEGATE_SUITE_PACKAGE` the package of the clients: `httpx` or `httpx2`. At its end, each process
appends the number of requests that went through a gate to the file that
`TIDEGATE_SUITE_COUNT` names. Each client has a gate of its own in each test, so that an answer in
one test (a 429 with Retry-After, or an outage) does not delay the calls of another test.
"""

from __future__ import annotations

import copy
import functools
import importlib
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import tidegate
from tidegate._transport import family_of
from tidegate._transport.clients import _new_transport
from tidegate._transport.custom_transport import ClientTransports

if TYPE_CHECKING:
    import httpx2
    import pytest
    from bridge import Bridge

    from tidegate._transport.httpx_family import HttpxFamily


class Run(NamedTuple):
    """One way to run the suite: the mode of the gates, and which transport opens connections."""

    mode: str
    #: The client's own transport stays, below the gate; else the gate's own takes the place of each plain one.
    keep: bool


RUNS = {
    "observe": Run("observe", keep=False),
    "enforce": Run("enforce", keep=False),
    "keep-observe": Run("observe", keep=True),
    "keep-enforce": Run("enforce", keep=True),
}

# Now: tests of the environment clear it.
_RUN, _COUNT = RUNS[os.environ["TIDEGATE_SUITE_RUN"]], Path(os.environ["TIDEGATE_SUITE_COUNT"])
_HTTPX = importlib.import_module(os.environ["TIDEGATE_SUITE_PACKAGE"])
_REQUESTS = itertools.count()
_TESTS = itertools.count(1)
_current_test = 0
_PLAIN = (_HTTPX.HTTPTransport, _HTTPX.AsyncHTTPTransport)


@functools.cache
def _bridge() -> Bridge | None:
    """Returns the bridge to the suite's mocks, or None if the suite has no mocks of respx."""
    # Once per worker, and not before the suite's own plug-ins are there.
    try:
        from bridge import Bridge
    except ImportError:
        return None
    return Bridge()


def _mocking_bridge() -> Bridge | None:
    """Returns the bridge if a mock is active that the gate's own transport would bypass."""
    bridge = None if _RUN.keep else _bridge()
    return bridge if bridge is not None and bridge.mocking else None


class _Pool(importlib.import_module(_HTTPX.__name__.replace("httpx", "httpcore")).ConnectionPool):  # type: ignore[misc]
    """A stand-in for httpx's connection pool, for the suite's tests that no request is left open.

    These tests check its class, and count the items of `_requests`. Here, it has one item for each
    slot in use.
    """

    def __init__(self, gate: tidegate.Gate) -> None:
        self._gate = gate

    @property
    def _requests(self) -> range:
        return range(sum(target["in_flight"] for target in self._gate.snapshot()["targets"].values()))


@functools.cache
def _suited(cls: type, *, asynchronous: bool) -> type:
    """Returns a subclass of the gate transport `cls` that counts requests.

    If the suite has an active mock that the transport would bypass, the request goes to the bridge,
    which gets the answer from the mock.
    """

    def handle_request(self: Any, request: httpx2.Request) -> httpx2.Response:
        _renew_gate(self)
        bridge = _mocking_bridge()
        if bridge is None:
            return cls.handle_request(self, request)
        with bridge.turned(request, asynchronous=False) as turned:
            return cls.handle_request(self, turned)

    async def handle_async_request(self: Any, request: httpx2.Request) -> httpx2.Response:
        _renew_gate(self)
        bridge = _mocking_bridge()
        if bridge is None:
            return await cls.handle_async_request(self, request)
        with bridge.turned(request, asynchronous=True) as turned:
            return await cls.handle_async_request(self, turned)

    handle = handle_async_request if asynchronous else handle_request
    # The tests of leaks ask where the class comes from, and whether it is a default one.
    bases = cls, _HTTPX.AsyncHTTPTransport if asynchronous else _HTTPX.HTTPTransport
    return type(cls.__name__, bases, {handle.__name__: handle, "__module__": _HTTPX.__name__})


def _renew_gate(ours: Any) -> None:
    """Counts a request. Gives the transport `ours` a new gate for its first request of a test."""
    next(_REQUESTS)
    if ours._test != _current_test:
        gate = tidegate.Gate(mode=_RUN.mode)
        ours._gate, ours._pool, ours._test = gate._native, _Pool(gate), _current_test


def _gated(family: HttpxFamily, *, asynchronous: bool, custom: ClientTransports | None) -> Any:
    gate = tidegate.Gate(mode=_RUN.mode)
    ours = _new_transport(gate._native, family, asynchronous=asynchronous, sdk=None, custom=custom)
    ours.__class__ = _suited(type(ours), asynchronous=asynchronous)
    ours._pool, ours._test = _Pool(gate), _current_test
    return ours


def _replace(cls: Any, *, asynchronous: bool) -> None:
    """Changes a client class so that its clients use the gate's own transport.

    As in `gate.wrap`, only transports without custom settings are replaced.
    """
    stock = cls._init_transport

    @functools.wraps(stock)
    def init_transport(self: Any, *args: Any, **kwargs: Any) -> Any:
        family, own = family_of(self), stock(self, *args, **kwargs)
        if family is None or type(own) not in _PLAIN or family.custom_tls_settings(own._pool._ssl_context):
            return own
        return _gated(family, asynchronous=asynchronous, custom=None)

    cls._init_transport = init_transport


def _keep(cls: Any, *, asynchronous: bool) -> None:
    """Changes a client class so that a gate is above the transport of each client.

    The mounts of the client stay as they are, above the gate: tests look at them. A client that an
    SDK makes for itself, and whose transport sends through the user's client, gets no second gate.
    """
    stock = cls.__init__

    @functools.wraps(stock)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        family, below_it = family_of(self), getattr(self._transport, "__dict__", {}).values()
        if family is not None and not any(isinstance(part, (_HTTPX.Client, _HTTPX.AsyncClient)) for part in below_it):
            below = copy.copy(self)
            below._mounts = {}
            custom = ClientTransports(below, owned=True)
            self._transport = _gated(family, asynchronous=asynchronous, custom=custom)

    cls.__init__ = init


def pytest_configure(config: pytest.Config) -> None:
    """Puts gates under the client classes, in every worker process of pytest."""
    put = _keep if _RUN.keep else _replace
    put(_HTTPX.Client, asynchronous=False)
    put(_HTTPX.AsyncClient, asynchronous=True)


def pytest_runtest_setup() -> None:
    """Begins a test, for which each client gets a new gate."""
    global _current_test
    _current_test = next(_TESTS)


def pytest_sessionfinish() -> None:
    """Appends the number of requests that went through a gate to the file `_COUNT`.

    The number proves that the suite used the gates.
    """
    with _COUNT.open("a") as counts:
        counts.write(f"{next(_REQUESTS)}\n")
