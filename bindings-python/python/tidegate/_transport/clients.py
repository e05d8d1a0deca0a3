"""httpx clients over a gate: new ones, and copies of those that users configured."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from tidegate._transport.asynchronous import AsyncGateTransport
from tidegate._transport.synchronous import GateTransport

if TYPE_CHECKING:
    from tidegate import _native
    from tidegate._transport.family import Family

# What an httpx client hands to the transport it makes, and ours does not take.
_TRANSPORT_ARGUMENTS = ("transport", "mounts", "proxy", "proxies", "verify", "cert", "app")

# Seconds: the default deadline of a target.
_TIMEOUT = 600.0

_LATER = 'keeping it comes with transport="keep" in a later version'

_IGNORES_PROXIES = "trust_env=False, while the environment has proxies, which the gate uses"


def gated(gate: _native.Gate, family: Family, kwargs: dict[str, Any], *, asynchronous: bool) -> Any:
    """Make a client of that family over the gate; in mode `off`, over the transport it has by itself."""
    # httpx's own 5 s would end most generations, and most waits for a slot; the SDKs allow ten minutes too.
    kwargs.setdefault("timeout", family.module.Timeout(_TIMEOUT))
    make = family.module.AsyncClient if asynchronous else family.module.Client
    if gate.mode == "off":
        return make(**kwargs)
    for name in _TRANSPORT_ARGUMENTS:
        if name in kwargs:
            raise TypeError(
                f"{name}= belongs to a transport of your own, and this client's is the gate; {_LATER}. Proxies and CA "
                "bundles come from the environment (HTTPS_PROXY, SSL_CERT_FILE)"
            )
    transport = family.async_transport if asynchronous else family.transport
    client = make(transport=transport(gate, wrapped=False), **kwargs)
    if family.ignores_proxies(client):
        raise TypeError(f"this client has {_IGNORES_PROXIES}, which cannot be kept under the gate yet: {_LATER}")
    return client


def regated(gate: _native.Gate, family: Family, client: Any, *, secure: bool) -> Any:
    """Copy a client, with our transport in place of its own.

    A shallow copy keeps whatever the user configured, known to us or not: hooks, auth, headers, cookies (the same
    jar), parameters, redirects, timeouts, and the class. Only what lives in the transport is ours now, and must have
    been the default.
    """
    if client.is_closed:
        raise ValueError("this client is closed")
    refuse = _what_cannot_be_kept(family, client, secure=secure)
    if refuse is not None:
        raise TypeError(f"this client has {refuse}, which cannot be kept under the gate yet: {_LATER}")
    asynchronous = isinstance(client, family.module.AsyncClient)
    make = family.async_transport if asynchronous else family.transport
    ours = copy.copy(client)
    ours._transport = make(gate, wrapped=True)  # noqa: SLF001 - the place that tests and plug-ins use too
    ours._mounts = {}  # noqa: SLF001
    return ours


def _what_cannot_be_kept(family: Family, client: Any, *, secure: bool) -> str | None:  # noqa: PLR0911 - one a reason
    """Name what the user set up in the transport, if anything."""
    transport = client._transport  # noqa: SLF001
    if family.ignores_proxies(client):
        return _IGNORES_PROXIES
    if isinstance(transport, (GateTransport, AsyncGateTransport)):
        return None
    if type(transport) not in (family.module.HTTPTransport, family.module.AsyncHTTPTransport):
        return f"a transport of its own ({type(transport).__module__}.{type(transport).__name__})"
    if set(client._mounts) - family.patterns_of_environment():  # noqa: SLF001
        return "mounts or a proxy of its own (proxies from the environment are kept)"
    pool = transport._pool  # noqa: SLF001
    if "Proxy" in type(pool).__name__:
        return "a proxy of its own (proxies from the environment are kept)"
    if getattr(pool, "_uds", None) is not None:
        return "a Unix socket of its own"
    if getattr(pool, "_local_address", None) is not None:
        return "a local address of its own"
    if secure and family.has_own_tls(getattr(pool, "_ssl_context", None)):
        return "TLS settings of its own (verify=, cert=; a CA bundle from SSL_CERT_FILE is kept)"
    return None
