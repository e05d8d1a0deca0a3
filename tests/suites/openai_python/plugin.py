"""A pytest plugin that puts a gate under every client of the suite.

`-p plugin`, with what to do in `TIDEGATE_SUITE_RUN` (see `RUNS`); each process adds a line to the file named by
`TIDEGATE_SUITE_COUNT`: how many requests went through a gate. Each client gets a gate of its own: what one test's server
says (a 429 with Retry-After) must not hold another test's calls.
"""

from __future__ import annotations

import copy
import functools
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2
import tidegate
from tidegate._transport import family_of
from tidegate._transport.kept import Inner

if TYPE_CHECKING:
    import pytest
    from bridge import Bridge
    from tidegate._transport.family import Family


class Run(NamedTuple):
    """One way to run the suite."""

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
_REQUESTS = itertools.count()
_PLAIN = (httpx2.HTTPTransport, httpx2.AsyncHTTPTransport)


@functools.cache
def _bridge() -> Bridge:
    # Once per worker, and not before the suite's own plug-ins are there.
    from bridge import Bridge

    return Bridge()


class _Pool:
    """What the suite's tests of leaks count, as the gate knows it: exchanges that have not ended."""

    def __init__(self, gate: tidegate.Gate) -> None:
        self._gate = gate

    @property
    def _requests(self) -> range:
        return range(sum(target["in_flight"] for target in self._gate.snapshot()["targets"].values()))


@functools.cache
def _suited(cls: type, *, asynchronous: bool) -> type:
    """Let a transport of ours count, and ask the suite's mocks where there are any that it would pass by."""

    def handle_request(self: Any, request: httpx2.Request) -> httpx2.Response:
        next(_REQUESTS)
        if _RUN.keep or not _bridge().mocking:
            return cls.handle_request(self, request)
        with _bridge().turned(request, asynchronous=False) as turned:
            return cls.handle_request(self, turned)

    async def handle_async_request(self: Any, request: httpx2.Request) -> httpx2.Response:
        next(_REQUESTS)
        if _RUN.keep or not _bridge().mocking:
            return await cls.handle_async_request(self, request)
        with _bridge().turned(request, asynchronous=True) as turned:
            return await cls.handle_async_request(self, turned)

    handle = handle_async_request if asynchronous else handle_request
    # The tests of leaks ask where the class comes from.
    return type(cls.__name__, (cls,), {handle.__name__: handle, "__module__": "httpx2"})


def _gated(family: Family, *, asynchronous: bool, inner: Inner | None) -> Any:
    gate = tidegate.Gate(mode=_RUN.mode)
    ours = family.transport(gate._native, asynchronous=asynchronous, wrapped=False, inner=inner)
    ours.__class__ = _suited(type(ours), asynchronous=asynchronous)
    ours._pool = _Pool(gate)
    return ours


def _replace(cls: Any, *, asynchronous: bool) -> None:
    """Give each client the gate's own transport where its own is plain, by the rule of `gate.wrap`."""
    stock = cls._init_transport

    @functools.wraps(stock)
    def init_transport(self: Any, *args: Any, **kwargs: Any) -> Any:
        family, own = family_of(self), stock(self, *args, **kwargs)
        if family is None or type(own) not in _PLAIN or family.own_tls(own._pool._ssl_context):
            return own
        return _gated(family, asynchronous=asynchronous, inner=None)

    cls._init_transport = init_transport


def _keep(cls: Any, *, asynchronous: bool) -> None:
    """Put the gate above each client's own transport, whatever that is. Its mounts stay as they are."""
    stock = cls.__init__

    @functools.wraps(stock)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        family = family_of(self)
        if family is not None:
            inner = Inner(copy.copy(self), owned=True)
            self._transport = _gated(family, asynchronous=asynchronous, inner=inner)

    cls.__init__ = init


def pytest_configure(config: pytest.Config) -> None:
    """Take the transports' place, in every worker."""
    put = _keep if _RUN.keep else _replace
    put(httpx2.Client, asynchronous=False)
    put(httpx2.AsyncClient, asynchronous=True)


def pytest_sessionfinish() -> None:
    """Say how many requests went through a gate: a suite that passes must have been there."""
    with _COUNT.open("a") as counts:
        counts.write(f"{next(_REQUESTS)}\n")
