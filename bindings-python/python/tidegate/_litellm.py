"""Sends the requests of all HTTP clients that LiteLLM uses in this process through a gate.

LiteLLM sends requests in two ways. OpenAI's SDK gets the httpx clients in `litellm.client_session`
and `litellm.aclient_session`. The providers that LiteLLM calls itself use its classes `HTTPHandler`
and `AsyncHTTPHandler`, which read their httpx client from the attribute `client` for each request. A
property in place of that attribute covers handlers that exist already, are cached, or belong to the
user.
"""

from __future__ import annotations

import importlib
import os
import re
import threading
import weakref
from typing import TYPE_CHECKING, Any

from tidegate._transport import HttpxFamily, family_of, is_gated, place_below

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tidegate import _native
    from tidegate._errors import Error

_VERSIONS = "gate.litellm() works with LiteLLM 1.92 to 1.109"

# What LiteLLM must have: the classes and the function in its module of HTTP clients, and its settings.
_HANDLERS = ("HTTPHandler", "AsyncHTTPHandler")
_HTTP_NAMES = (*_HANDLERS, "get_ssl_configuration")
_SETTINGS = ("client_session", "aclient_session", "in_memory_llm_clients_cache")

# Settings of LiteLLM for connections, with their defaults, and the environment variables that
# override them. With other values, LiteLLM's own transports open the connections.
_CONNECTION_SETTINGS: dict[str, Any] = {
    "ssl_verify": True,
    "ssl_certificate": None,
    "ssl_security_level": None,
    "ssl_ecdh_curve": None,
    "force_ipv4": False,
    "sync_transport": None,
    "disable_aiohttp_trust_env": False,
}
_CONNECTION_VARIABLES = (
    "SSL_VERIFY",
    "SSL_CERTIFICATE",
    "SSL_SECURITY_LEVEL",
    "SSL_ECDH_CURVE",
    "DISABLE_AIOHTTP_TRUST_ENV",
)

# The line after which LiteLLM reads no further, although the body has not ended: at OpenAI, Anthropic
# and ollama. It does not match the arguments of a tool.
_LAST_EVENT = re.compile(
    rb'^data: ?\[DONE\]|^event: ?message_(?:delta|stop)|^data: ?\{"type": ?"message_(?:delta|stop)"'
    rb'|^\{[^\n]*"done_reason": ?"',
    re.MULTILINE,
)

# The routes that are open, oldest first. Requests take the last one.
_routes: list[LiteLLMRoute] = []
_lock = threading.RLock()


class LiteLLMRoute:
    """The replacement of LiteLLM's HTTP clients by those of a gate. Closing it undoes `Gate.litellm`.

    Use it as a context manager, or call `close`, or neither if LiteLLM uses the gate until the
    process ends.
    """

    def __init__(self, gate: _native.Gate) -> None:
        """Stores the gate. `route_litellm` opens the route."""
        self.gate = gate
        self._family = _Family(retries=gate.mode == "enforce")
        # For each handler, its own client, and the copy whose requests go through the gate.
        self._copies: weakref.WeakKeyDictionary[Any, tuple[Any, Any]] = weakref.WeakKeyDictionary()
        # The values of LiteLLM's settings: those of the user, and the replacements.
        self._sessions: dict[str, tuple[Any, Any]] = {}
        self._handlers: list[Any] = []

    def close(self) -> None:
        """Restores LiteLLM's own HTTP clients. Calls in flight end as usual.

        If another gate was in use before, LiteLLM's requests go through that gate again. A second
        call has no effect.
        """
        with _lock:
            if self not in _routes:
                return
            is_used = self is _routes[-1]
            _routes.remove(self)
            if is_used:
                self.restore_sessions()
            if not _routes:
                _remove_properties()
            elif is_used:
                _routes[-1].replace_sessions()

    def __enter__(self) -> LiteLLMRoute:
        """Returns the route itself, which is open already."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def client_for(self, handler: Any, client: Any) -> Any:
        """Returns the client through which a handler sends: a copy of its client below the gate.

        The copy is cached until the handler gets another client.
        """
        known = self._copies.get(handler)
        # LiteLLM closes the client of an unused handler only if nothing else refers to the client.
        if known is None or known[0]() is not client:
            known = self._copies[handler] = weakref.ref(client), self._below(client)
        return known[1]

    def _below(self, client: Any) -> Any:
        """Returns a copy of an httpx client whose requests go through the gate.

        A client that sends through a gate already is returned unchanged.
        """
        if family_of(client) is None or is_gated(client):
            return client
        return place_below(self.gate, self._family, client, native=_connects_by_default(client))

    def replace_sessions(self) -> None:
        """Sets the httpx clients of OpenAI's SDK, and drops the SDK clients that LiteLLM cached."""
        litellm, http = _litellm(), _http()
        for name, kind in zip(("client_session", "aclient_session"), _HANDLERS, strict=True):
            own = getattr(litellm, name)
            handler = getattr(http, kind)() if own is None else None
            given = self._below(own) if handler is None else handler.client
            # Handlers close their clients when they are dropped.
            self._handlers.append(handler)
            self._sessions[name] = own, given
            setattr(litellm, name, given)
        litellm.in_memory_llm_clients_cache.flush_cache()

    def restore_sessions(self) -> None:
        """Undoes `replace_sessions`, except for settings that the user has changed since."""
        litellm = _litellm()
        for name, (own, given) in self._sessions.items():
            if getattr(litellm, name) is given:
                setattr(litellm, name, own)
        self._sessions = {}
        litellm.in_memory_llm_clients_cache.flush_cache()


class _SyncStream:
    """A body that releases the slot of its call when LiteLLM stops reading.

    LiteLLM closes no body. It stops reading at the last event of a stream, and drops the body if the
    reader leaves. Otherwise, both slots would be released only by a garbage collection.
    """

    def __iter__(self) -> Iterator[bytes]:
        """Yields the chunks. The last event and all that follows it are one chunk, after the end."""
        rest = b""
        try:
            for chunk in iter(super().__next__, None):  # type: ignore[misc]
                if not rest and _LAST_EVENT.search(chunk) is None:
                    yield chunk
                else:
                    rest += chunk
        except self._family.module.HTTPError:  # type: ignore[attr-defined]
            if not rest:
                raise
        finally:
            self.close()  # type: ignore[attr-defined]
        if rest:
            yield rest


class _AsyncStream:
    """As `_SyncStream`, for asynchronous clients."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yields the chunks. The last event and all that follows it are one chunk, after the end."""
        rest = b""
        try:
            while True:
                chunk = await super().__anext__()  # type: ignore[misc]
                if not rest and _LAST_EVENT.search(chunk) is None:
                    yield chunk
                else:
                    rest += chunk
        except StopAsyncIteration:
            pass
        except self._family.module.HTTPError:  # type: ignore[attr-defined]
            if not rest:
                raise
        finally:
            await self.aclose()  # type: ignore[attr-defined]
        if rest:
            yield rest


_STREAMS: dict[str, type] = {"SyncByteStream": _SyncStream, "AsyncByteStream": _AsyncStream}


class _Family(HttpxFamily):
    """The package `httpx`, with bodies and exceptions that suit LiteLLM."""

    def __init__(self, *, retries: bool) -> None:
        """Imports the package. `retries` is whether the gate retries instead of LiteLLM."""
        super().__init__("httpx")
        self._retries = retries

    def derive(self, implementation: type, base: str) -> Any:
        """Returns a subclass as in the base class. Bodies are also `_SyncStream` or `_AsyncStream`."""
        if base not in _STREAMS:
            return super().derive(implementation, base)
        key = implementation, base
        if key not in self._derived:
            kind = type(implementation.__name__, (_STREAMS[base], implementation), {})
            self._derived[key] = super().derive(kind, base)
        return self._derived[key]

    def exception(self, error: Error, request: Any) -> BaseException:
        """Returns the exception for an error of the gate, as in the base class.

        LiteLLM repeats a request after a `ConnectError` or `RemoteProtocolError`, with a client that
        it creates for that. The gate has made all attempts already, so it raises a `ReadError`
        instead.
        """
        raised = super().exception(error, request)
        if not self._retries or not isinstance(raised, (self.module.ConnectError, self.module.RemoteProtocolError)):
            return raised
        replaced: Exception = self.module.ReadError(str(raised), request=request)
        replaced.__cause__ = raised
        return replaced


def route_litellm(gate: _native.Gate) -> LiteLLMRoute:
    """Opens a route for LiteLLM's requests through the gate. See `Gate.litellm`.

    Returns the open route if it belongs to the same gate.
    """
    try:
        litellm = _litellm()
    except ImportError as error:
        raise ImportError("gate.litellm() needs LiteLLM: pip install litellm") from error
    _check_names(litellm)
    with _lock:
        if _routes and _routes[-1].gate is gate:
            return _routes[-1]
        route = LiteLLMRoute(gate)
        if gate.can_bypass:
            return route
        if _routes:
            _routes[-1].restore_sessions()
        else:
            _add_properties()
        _routes.append(route)
        try:
            route.replace_sessions()
        except BaseException:
            route.close()
            raise
        return route


def _litellm() -> Any:
    """Returns the package LiteLLM. Imports it at the first call."""
    return importlib.import_module("litellm")


def _http() -> Any:
    """Returns LiteLLM's module of HTTP clients."""
    return importlib.import_module("litellm.llms.custom_httpx.http_handler")


def _check_names(litellm: Any) -> None:
    """Checks that the installed LiteLLM has everything that a route replaces.

    Raises:
        RuntimeError: If a name is missing. The message names the versions that work.

    """
    try:
        http = _http()
    except ImportError:
        http = None
    missing = [name for name in _HTTP_NAMES if not hasattr(http, name)]
    missing += [name for name in _SETTINGS if not hasattr(litellm, name)]
    if missing:
        raise RuntimeError(f"the installed LiteLLM has no {', '.join(missing)}: {_VERSIONS}")


def _add_properties() -> None:
    """Replaces the attribute `client` of LiteLLM's handlers by a property that asks the route."""
    for name in _HANDLERS:
        kind = getattr(_http(), name)
        _originals[kind] = kind.__dict__.get("client")
        kind.client = _property(_originals[kind])


def _remove_properties() -> None:
    """Undoes `_add_properties`."""
    for kind, original in _originals.items():
        if original is None:
            del kind.client
        else:
            kind.client = original
    _originals.clear()


# The original property `client` of each handler class. None if the attribute is in the instances, as
# it is before LiteLLM 1.100.
_originals: dict[Any, Any] = {}


def _property(original: Any) -> property:
    """Returns the property that takes the place of `original`, which is None or a property."""

    def read(handler: Any) -> Any:
        if original is not None:
            client = original.fget(handler)
        elif "client" in vars(handler):
            client = vars(handler)["client"]
        else:
            raise AttributeError("client")
        routes = _routes[-1:]
        return routes[0].client_for(handler, client) if routes else client

    def write(handler: Any, client: Any) -> None:
        if original is None:
            vars(handler)["client"] = client
        else:
            original.fset(handler, client)

    return property(read, write)


def _connects_by_default(client: Any) -> bool:
    """Returns `True` if LiteLLM created a client, and all settings of its connections are default.

    Then the gate can open the connections.
    """
    litellm = _litellm()
    if any(getattr(litellm, name, default) != default for name, default in _CONNECTION_SETTINGS.items()):
        return False
    if any(os.environ.get(name) for name in _CONNECTION_VARIABLES):
        return False
    transport = client._transport  # noqa: SLF001 - nothing public says how a client connects
    # The session of a transport of aiohttp can be the user's.
    if not getattr(transport, "_owns_session", True):
        return False
    context = getattr(transport, "_ssl_verify", None) or getattr(
        getattr(transport, "_pool", None), "_ssl_context", None
    )
    return context is _http().get_ssl_configuration()
