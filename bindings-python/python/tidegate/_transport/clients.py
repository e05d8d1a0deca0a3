"""httpx clients that send through a gate: new clients, and copies of existing ones."""

from __future__ import annotations

import copy
import inspect
import socket
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, get_args

from tidegate._transport.async_transport import AsyncGateTransport
from tidegate._transport.custom_transport import ClientTransports
from tidegate._transport.httpx_family import authorities_difference
from tidegate._transport.sync_transport import GateTransport

if TYPE_CHECKING:
    from tidegate import _native
    from tidegate._transport.base import SdkRetries
    from tidegate._transport.httpx_family import HttpxFamily

TransportName = Literal["auto", "keep", "native"]

# Arguments that an httpx client passes to its transport and that the gate's transport does not
# support, each with its default value.
_TRANSPORT_ARGUMENTS = {
    "transport": None,
    "mounts": None,
    "proxy": None,
    "proxies": None,
    "verify": True,
    "cert": None,
    "app": None,
}

# Seconds. Equals the default deadline of a target.
_TIMEOUT = 600.0

_HANDLERS = ("handle_request", "handle_async_request")

_MOUNTED = "custom mounts, a custom proxy, or proxies from an earlier environment"
_PROXIED = "a custom proxy (proxies from the environment are supported)"
_IGNORES_PROXIES = "trust_env=False, but the gate uses the proxies of the environment"


def new_client(gate: _native.Gate, family: HttpxFamily, kwargs: dict[str, Any], *, asynchronous: bool) -> Any:
    """Returns a new httpx client that sends through the gate.

    In mode `off`, the client uses its own transport, unless a target is a pool.

    Args:
        gate: The native gate.
        family: The package of the client.
        kwargs: Arguments of the client class. `transport` may also be a transport name.
        asynchronous: Whether to create an `AsyncClient` instead of a `Client`.

    Raises:
        TypeError: If `transport="native"` and an argument belongs to another transport.
        ValueError: If `transport` is text but not a transport name.

    """
    # httpx's default of 5 s is too short for generations and for waits in the queue. The SDKs also
    # allow ten minutes.
    kwargs.setdefault("timeout", family.module.Timeout(_TIMEOUT))
    make = family.module.AsyncClient if asynchronous else family.module.Client
    choice = check_transport_name(kwargs.pop("transport")) if isinstance(kwargs.get("transport"), str) else "auto"
    if gate.can_bypass:
        return make(**kwargs)
    own = [f"{name}=" for name, nothing in _TRANSPORT_ARGUMENTS.items() if kwargs.get(name, nothing) is not nothing]
    trust_env = kwargs.get("trust_env", True)
    if family.ignores_proxies(trust_env=trust_env):
        own.append(_IGNORES_PROXIES)
    authorities = authorities_difference(gate, trust_env=trust_env)
    if authorities is not None:
        own.append(authorities)
    replaced = _replaced_handler(family.module.AsyncHTTPTransport if asynchronous else family.module.HTTPTransport)
    if replaced is not None:
        own.append(replaced)
    if own and choice == "native":
        raise TypeError(_native_conflict(", ".join(own)))
    if own or choice == "keep":
        return _keep_transport(gate, family, make(**kwargs), sdk=None, owned=True)
    settings = {name: value for name, value in kwargs.items() if name not in _TRANSPORT_ARGUMENTS}
    return make(transport=new_transport(gate, family, asynchronous=asynchronous), **settings)


def new_transport(gate: _native.Gate, family: HttpxFamily, *, asynchronous: bool) -> Any:
    """Returns a new transport of the package that sends through the gate.

    In mode `off`, returns the package's own transport, unless a target is a pool.
    """
    if gate.can_bypass:
        return family.module.AsyncHTTPTransport() if asynchronous else family.module.HTTPTransport()
    proxies = gate.proxies(family.environment_mounts)
    return _new_transport(gate, family, asynchronous=asynchronous, sdk=None, proxies=proxies)


def wrap_client(gate: _native.Gate, family: HttpxFamily, client: Any, *, choice: TransportName, sdk: SdkRetries) -> Any:
    """Returns a shallow copy of an httpx client whose requests go through the gate.

    The copy keeps the user's settings: hooks, auth, headers, cookies (the same jar), parameters,
    redirects, timeouts, and the class. If the client's transport is not a default one, the copy
    sends through that transport, below the gate.

    Args:
        gate: The native gate.
        family: The package of the client.
        client: The client, which is not changed.
        choice: As in `Gate.wrap`.
        sdk: The retries of the SDK client that `client` belongs to.

    Raises:
        TypeError: If `choice` is `native` and the transport has a setting that the gate does not
            support.
        ValueError: If the client is closed.

    """
    if client.is_closed:
        raise ValueError("this client is closed: wrap an open client")
    present = client._transport  # noqa: SLF001 - mocks and plug-ins replace it here
    if isinstance(present, (GateTransport, AsyncGateTransport)):
        return _rewrap(gate, family, client, present, choice=choice, sdk=present.sdk or sdk)
    own = authorities_difference(gate, trust_env=client.trust_env) or _custom_settings(family, client)
    if own is not None and choice == "native":
        raise TypeError(_native_conflict(own))
    if own is not None or choice == "keep":
        return _keep_transport(gate, family, client, sdk=sdk, owned=False)
    return _copy_with_transport(gate, family, client, sdk=sdk, proxies=gate.proxies(family.environment_mounts))


def is_gated(client: Any) -> bool:
    """Returns `True` if the requests of an httpx client go through a gate."""
    return isinstance(client._transport, (GateTransport, AsyncGateTransport))  # noqa: SLF001


def place_below(gate: _native.Gate, family: HttpxFamily, client: Any, *, native: bool) -> Any:
    """Returns a shallow copy of an httpx client whose requests go through the gate.

    The client belongs to a library whose own retries stay on: failures are raised as by
    `Gate.httpx_client`. If the transports of `client` open the connections, closing the copy closes
    them.

    Args:
        gate: The native gate.
        family: The package of the client.
        client: The client, which is not changed.
        native: Whether the gate opens the connections, with the proxies and authorities of the
            environment. Otherwise, and if these authorities have changed or the class of the
            transport was changed, the transports of `client` do.

    """
    is_default = native and _replaced_handler(type(client._transport)) is None  # noqa: SLF001
    if is_default and authorities_difference(gate, trust_env=True) is None:
        return _copy_with_transport(gate, family, client, sdk=None, proxies=gate.proxies(family.environment_mounts))
    return _keep_transport(gate, family, copy.copy(client), sdk=None, owned=True)


def check_transport_name(choice: str) -> TransportName:
    """Returns `choice` if it is a transport name.

    Raises:
        ValueError: If it is not one of `auto`, `keep` and `native`.

    """
    known: dict[str, TransportName] = {name: name for name in get_args(TransportName)}
    if choice not in known:
        raise ValueError(f"transport: {choice!r} is not valid; give one of {', '.join(known)}")
    return known[choice]


def _native_conflict(what: str) -> str:
    """Returns the error message for `transport="native"` and a client with a custom setting.

    `what` describes the setting, for example `a custom transport`.
    """
    return (
        f'this client has {what}, which transport="native" does not support; use transport="auto" or "keep" to send '
        "through the client's own transport, below the gate"
    )


def _rewrap(  # noqa: PLR0913 - one argument a setting
    gate: _native.Gate,
    family: HttpxFamily,
    client: Any,
    present: GateTransport | AsyncGateTransport,
    *,
    choice: str,
    sdk: SdkRetries,
) -> Any:
    """Returns a copy of an already wrapped httpx client; the copy sends through `gate` instead.

    `present` is the transport of `client`, which sends through the gate that wrapped it. See
    `wrap_client` for the errors.
    """
    custom = present.custom
    if custom is not None:
        if choice == "native":
            raise TypeError(_native_conflict("a custom transport"))
        return _copy_with_transport(gate, family, client, sdk=sdk, custom=ClientTransports(custom.client, owned=False))
    if choice == "keep":
        raise TypeError("this client has no transport of its own, because it was wrapped already: wrap the original")
    if present._gate.authorities != gate.authorities:  # noqa: SLF001
        raise TypeError("this client was wrapped by a gate with other TLS authorities: wrap the original")
    # The first wrap removed the client's mounts. Its proxies are in that transport, unless the
    # first gate ignores proxies.
    proxies = present.proxies
    if proxies is None:
        proxies = gate.proxies(family.environment_mounts if client.trust_env else list)
    return _copy_with_transport(gate, family, client, sdk=sdk, proxies=proxies)


def _keep_transport(
    gate: _native.Gate, family: HttpxFamily, client: Any, *, sdk: SdkRetries | None, owned: bool
) -> Any:
    """Returns a copy of an httpx client whose gate transport sends through the client's transports.

    For `sdk`, see `TransportBase`. If `owned`, the copy opens and closes `client`.
    """
    return _copy_with_transport(gate, family, client, sdk=sdk, custom=ClientTransports(client, owned=owned))


def _copy_with_transport(gate: _native.Gate, family: HttpxFamily, client: Any, **settings: Any) -> Any:
    """Returns a copy of an httpx client with a gate transport.

    For `settings`, see `_new_transport`.
    """
    asynchronous = isinstance(client, family.module.AsyncClient)
    copied = copy.copy(client)
    copied._transport = _new_transport(gate, family, asynchronous=asynchronous, **settings)  # noqa: SLF001
    copied._mounts = {}  # noqa: SLF001
    return copied


def _new_transport(  # noqa: PLR0913 - one argument a setting
    gate: _native.Gate,
    family: HttpxFamily,
    *,
    asynchronous: bool,
    sdk: SdkRetries | None,
    custom: ClientTransports | None = None,
    proxies: _native.ProxyRules | None = None,
) -> Any:
    """Returns a gate transport for clients of the package.

    For the settings, see `TransportBase`.
    """
    if asynchronous:
        kind = family.derive(AsyncGateTransport, "AsyncBaseTransport")
    else:
        kind = family.derive(GateTransport, "BaseTransport")
    return kind(gate, family, sdk, custom, proxies)


def _custom_settings(family: HttpxFamily, client: Any) -> str | None:
    """Returns a description of the first custom setting that is found in a client's transports.

    Returns None if all settings are default.
    """
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
    """Returns a description of the first custom setting that is found in one httpx transport.

    Returns None if all settings are default. `mounted` is whether the transport comes from a mount.
    By default, mounts contain only transports for proxies.
    """
    if type(transport) not in (family.module.HTTPTransport, family.module.AsyncHTTPTransport):
        return f"a custom transport ({type(transport).__module__}.{type(transport).__name__})"
    pool = transport._pool  # noqa: SLF001
    if ("Proxy" in type(pool).__name__) is not mounted:
        return _MOUNTED if mounted else _PROXIED
    own = _custom_connection_settings(family, transport, pool)
    if own is not None:
        return own
    # A pool without the attribute is compared in place of its context, and differs by its class.
    contexts = getattr(pool, "_ssl_context", pool), getattr(pool, "_proxy_ssl_context", None)
    tls = [name for context in contexts for name in family.custom_tls_settings(context)]
    return f"custom TLS settings ({', '.join(tls)}; a CA bundle from SSL_CERT_FILE is supported)" if tls else None


def _custom_connection_settings(family: HttpxFamily, transport: Any, pool: Any) -> str | None:
    """Returns a description of the first custom connection setting, except for TLS settings.

    Returns None if all connection settings are default.
    """
    for name in _HANDLERS:
        if any(name in getattr(part, "__dict__", ()) for part in (transport, pool)):
            return f"a custom {name}"
    replaced = _replaced_handler(type(transport))
    if replaced is not None:
        return replaced
    if getattr(pool, "_uds", None) is not None:
        return "a Unix socket"
    if getattr(pool, "_local_address", None) is not None:
        return "a local address"
    if not all(_is_keepalive(option) for option in getattr(pool, "_socket_options", None) or ()):
        return "custom socket options"
    return "a custom network backend" if family.has_custom_backend(transport) else None


def _replaced_handler(cls: type) -> str | None:
    """Returns a description of the first method of a transport class that is not the original one.

    Tools for tracing and for tests replace these methods: by an object, or by a function of another
    package. Returns None if no method was replaced.
    """
    package = cls.__module__.partition(".")[0]
    for name in _HANDLERS:
        method = inspect.getattr_static(cls, name, None)
        if method is None:
            continue
        # Attributes of a wrapper may be those of the original function, but not its type or its globals.
        if type(method) is not FunctionType or method.__globals__.get("__name__", "").partition(".")[0] != package:
            return f"a custom {name}"
    return None


def _is_keepalive(option: tuple[Any, ...]) -> bool:
    """Returns `True` if a socket option is `SO_KEEPALIVE` or an option of TCP.

    Such options do not count as custom settings.
    """
    return option[0] == socket.IPPROTO_TCP or tuple(option[:2]) == (socket.SOL_SOCKET, socket.SO_KEEPALIVE)
