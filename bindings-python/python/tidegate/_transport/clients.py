"""httpx clients over a gate: new ones, and copies of those that users configured."""

from __future__ import annotations

import copy
import socket
from typing import TYPE_CHECKING, Any, Literal, get_args

from tidegate._transport.async_transport import AsyncGateTransport
from tidegate._transport.custom_transport import ClientTransports
from tidegate._transport.family import authorities_difference
from tidegate._transport.sync_transport import GateTransport

if TYPE_CHECKING:
    from tidegate import _native
    from tidegate._transport.family import HttpxFamily

TransportName = Literal["auto", "keep", "native"]

# What an httpx client hands to the transport it makes, and the gate's does not take; with what says nothing.
_TRANSPORT_ARGUMENTS = {
    "transport": None,
    "mounts": None,
    "proxy": None,
    "proxies": None,
    "verify": True,
    "cert": None,
    "app": None,
}

# Seconds: the default deadline of a target.
_TIMEOUT = 600.0

_HANDLERS = ("handle_request", "handle_async_request")

_MOUNTED = "mounts or a proxy of its own, or proxies from an earlier environment"
_PROXIED = "a proxy of its own (proxies from the environment are kept)"
_IGNORES_PROXIES = "trust_env=False, while the environment has proxies, which the gate uses"


def new_client(gate: _native.Gate, family: HttpxFamily, kwargs: dict[str, Any], *, asynchronous: bool) -> Any:
    """Make a client of that family over the gate; in mode `off` without pools, over its own transport."""
    # httpx's own 5 s would end most generations, and most waits for a slot; the SDKs allow ten minutes too.
    kwargs.setdefault("timeout", family.module.Timeout(_TIMEOUT))
    make = family.module.AsyncClient if asynchronous else family.module.Client
    choice = check_transport_name(kwargs.pop("transport")) if isinstance(kwargs.get("transport"), str) else "auto"
    if gate.aside:
        return make(**kwargs)
    own = [f"{name}=" for name, nothing in _TRANSPORT_ARGUMENTS.items() if kwargs.get(name, nothing) is not nothing]
    trust_env = kwargs.get("trust_env", True)
    if family.ignores_proxies(trust_env=trust_env):
        own.append(_IGNORES_PROXIES)
    authorities = authorities_difference(gate, trust_env=trust_env)
    if authorities is not None:
        own.append(authorities)
    if own and choice == "native":
        raise TypeError(_native_conflict(", ".join(own)))
    if own or choice == "keep":
        return _keep_transport(gate, family, make(**kwargs), wrapped=False, owned=True)
    settings = {name: value for name, value in kwargs.items() if name not in _TRANSPORT_ARGUMENTS}
    proxies = gate.proxies(family.environment_mounts)
    over = _new_transport(gate, family, asynchronous=asynchronous, wrapped=False, proxies=proxies)
    return make(transport=over, **settings)


def wrap_client(gate: _native.Gate, family: HttpxFamily, client: Any, *, choice: TransportName) -> Any:
    """Copy a client, with our transport in place of its own, or above it.

    A shallow copy keeps whatever the user configured, known to us or not: hooks, auth, headers, cookies (the same
    jar), parameters, redirects, timeouts, and the class. What lives in the transport is kept with the transport, where
    it is not the default one.
    """
    if client.is_closed:
        raise ValueError("this client is closed")
    present = client._transport  # noqa: SLF001 - the place that tests and plug-ins use too
    if isinstance(present, (GateTransport, AsyncGateTransport)):
        return _rewrap(gate, family, client, present, choice=choice)
    own = authorities_difference(gate, trust_env=client.trust_env) or _custom_settings(family, client)
    if own is not None and choice == "native":
        raise TypeError(_native_conflict(own))
    if own is not None or choice == "keep":
        return _keep_transport(gate, family, client, wrapped=True, owned=False)
    return _copy_with_transport(gate, family, client, wrapped=True, proxies=gate.proxies(family.environment_mounts))


def check_transport_name(choice: str) -> TransportName:
    """Return the name of a choice of transport; ValueError for what is none."""
    known: dict[str, TransportName] = {name: name for name in get_args(TransportName)}
    if choice not in known:
        raise ValueError(f"transport: {choice!r} is none of {', '.join(known)}")
    return known[choice]


def _native_conflict(what: str) -> str:
    return (
        f'this client has {what}, which cannot be kept under transport="native"; without it, or with '
        'transport="keep", its own transport stays, below the gate'
    )


def _rewrap(
    gate: _native.Gate, family: HttpxFamily, client: Any, present: GateTransport | AsyncGateTransport, *, choice: str
) -> Any:
    """Copy a client that goes through a gate already: now through this one."""
    custom = present.custom
    if custom is not None:
        if choice == "native":
            raise TypeError(_native_conflict("a transport of its own"))
        return _copy_with_transport(
            gate, family, client, wrapped=True, custom=ClientTransports(custom.client, owned=False)
        )
    if choice == "keep":
        raise TypeError("this client's transport is a gate's already: wrap the original, which still has its own")
    if present._gate.authorities != gate.authorities:  # noqa: SLF001
        raise TypeError("this client's transport is that of a gate with other TLS authorities: wrap the original")
    # The client's own mounts are gone: its proxies are in the earlier transport, unless that gate takes none.
    proxies = present.proxies
    if proxies is None:
        proxies = gate.proxies(family.environment_mounts if client.trust_env else list)
    return _copy_with_transport(gate, family, client, wrapped=True, proxies=proxies)


def _keep_transport(gate: _native.Gate, family: HttpxFamily, client: Any, *, wrapped: bool, owned: bool) -> Any:
    return _copy_with_transport(gate, family, client, wrapped=wrapped, custom=ClientTransports(client, owned=owned))


def _copy_with_transport(gate: _native.Gate, family: HttpxFamily, client: Any, **settings: Any) -> Any:
    """Copy a client onto a transport with these settings, which are those of `_transport`."""
    asynchronous = isinstance(client, family.module.AsyncClient)
    ours = copy.copy(client)
    ours._transport = _new_transport(gate, family, asynchronous=asynchronous, **settings)  # noqa: SLF001
    ours._mounts = {}  # noqa: SLF001
    return ours


def _new_transport(  # noqa: PLR0913 - one argument a setting
    gate: _native.Gate,
    family: HttpxFamily,
    *,
    asynchronous: bool,
    wrapped: bool,
    custom: ClientTransports | None = None,
    proxies: _native.ProxyRules | None = None,
) -> Any:
    """Make a transport over the gate, for clients of this family."""
    if asynchronous:
        kind = family.derive(AsyncGateTransport, "AsyncBaseTransport")
    else:
        kind = family.derive(GateTransport, "BaseTransport")
    return kind(gate, family, wrapped, custom, proxies)


def _custom_settings(family: HttpxFamily, client: Any) -> str | None:
    """Name what the user set up in the client's transports, if anything."""
    if family.ignores_proxies(trust_env=client.trust_env):
        return _IGNORES_PROXIES
    own = _custom_transport_settings(family, client._transport, mounted=False)  # noqa: SLF001
    if own is not None:
        return own
    mounts = client._mounts  # noqa: SLF001
    if family.has_custom_mounts(mounts):
        return _MOUNTED
    named = (
        _custom_transport_settings(family, mounted, mounted=True) for mounted in mounts.values() if mounted is not None
    )
    return next(filter(None, named), None)


def _custom_transport_settings(family: HttpxFamily, transport: Any, *, mounted: bool) -> str | None:
    """Name what the user set up in one transport. The environment mounts proxies only."""
    if type(transport) not in (family.module.HTTPTransport, family.module.AsyncHTTPTransport):
        return f"a transport of its own ({type(transport).__module__}.{type(transport).__name__})"
    pool = transport._pool  # noqa: SLF001
    if ("Proxy" in type(pool).__name__) is not mounted:
        return _MOUNTED if mounted else _PROXIED
    own = _custom_connection_settings(family, transport, pool)
    if own is not None:
        return own
    # A pool without the attribute stands in for its context, and differs by its class.
    contexts = getattr(pool, "_ssl_context", pool), getattr(pool, "_proxy_ssl_context", None)
    tls = [name for context in contexts for name in family.custom_tls_settings(context)]
    return f"TLS settings of its own ({', '.join(tls)}; a CA bundle from SSL_CERT_FILE is kept)" if tls else None


def _custom_connection_settings(family: HttpxFamily, transport: Any, pool: Any) -> str | None:
    """Name what the user set up in how a transport connects, apart from TLS."""
    for name in _HANDLERS:
        if any(name in getattr(part, "__dict__", ()) for part in (transport, pool)):
            return f"a {name} of its own"
    if getattr(pool, "_uds", None) is not None:
        return "a Unix socket of its own"
    if getattr(pool, "_local_address", None) is not None:
        return "a local address of its own"
    if not all(_is_keepalive(option) for option in getattr(pool, "_socket_options", None) or ()):
        return "socket options of its own"
    return "a network backend of its own" if family.has_custom_backend(transport) else None


def _is_keepalive(option: tuple[Any, ...]) -> bool:
    """Return whether a socket option concerns keepalive or TCP, which the gate sets by itself."""
    return option[0] == socket.IPPROTO_TCP or tuple(option[:2]) == (socket.SOL_SOCKET, socket.SO_KEEPALIVE)
