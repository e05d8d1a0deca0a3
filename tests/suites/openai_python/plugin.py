"""A pytest plugin that puts the gate's transport under every client of the suite that has a plain one.

`-p plugin`, with the gate's mode in `TIDEGATE_SUITE_MODE`; each process adds a line to the file named by
`TIDEGATE_SUITE_COUNT`: how many requests went through a gate. Each client gets a gate of its own: what one test's server
says (a 429 with Retry-After) must not hold another test's calls.
"""

from __future__ import annotations

import functools
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import tidegate
from tidegate._transport import family_of

if TYPE_CHECKING:
    import pytest
    from bridge import Bridge

_REQUESTS = itertools.count()
# Now: tests of the environment clear it.
_MODE, _COUNT = os.environ["TIDEGATE_SUITE_MODE"], Path(os.environ["TIDEGATE_SUITE_COUNT"])
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
    """Let our transport ask the suite's mocks where there are any."""

    def handle_request(self: Any, request: httpx2.Request) -> httpx2.Response:
        next(_REQUESTS)
        if not _bridge().mocking:
            return cls.handle_request(self, request)
        with _bridge().turned(request, asynchronous=False) as turned:
            return cls.handle_request(self, turned)

    async def handle_async_request(self: Any, request: httpx2.Request) -> httpx2.Response:
        next(_REQUESTS)
        if not _bridge().mocking:
            return await cls.handle_async_request(self, request)
        with _bridge().turned(request, asynchronous=True) as turned:
            return await cls.handle_async_request(self, turned)

    handle = handle_async_request if asynchronous else handle_request
    # The tests of leaks ask where the class comes from.
    return type(cls.__name__, (cls,), {handle.__name__: handle, "__module__": "httpx2"})


def _ours(client: Any, stock: Any) -> Any:
    """Return the gate's transport, where the client's own is plain; `gate.wrap` keeps to the same rule."""
    family = family_of(client)
    assert family is not None
    if type(stock) not in _PLAIN or family.has_own_tls(stock._pool._ssl_context):
        return stock
    gate = tidegate.Gate(mode=_MODE)
    asynchronous = isinstance(client, httpx2.AsyncClient)
    make = family.async_transport if asynchronous else family.transport
    ours = make(gate._native, wrapped=False)
    ours.__class__ = _suited(type(ours), asynchronous=asynchronous)
    ours._pool = _Pool(gate)
    return ours


def _replace(cls: Any) -> None:
    stock = cls._init_transport

    @functools.wraps(stock)
    def init_transport(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _ours(self, stock(self, *args, **kwargs))

    cls._init_transport = init_transport


def pytest_configure(config: pytest.Config) -> None:
    """Take the transports' place, in every worker."""
    _replace(httpx2.Client)
    _replace(httpx2.AsyncClient)


def pytest_sessionfinish() -> None:
    """Say how many requests went through a gate: a suite that passes must have been there."""
    with _COUNT.open("a") as counts:
        counts.write(f"{next(_REQUESTS)}\n")
