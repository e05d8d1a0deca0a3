"""`httpx` and `httpx2` are two packages with one shape. Neither is needed until a client of it shows up."""

from __future__ import annotations

import errno
import functools
import importlib
import importlib.util
import os
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tidegate._errors import ConfigError
from tidegate._transport import tls_settings

if TYPE_CHECKING:
    from tidegate import _native
    from tidegate._errors import Error
    from tidegate._types import Mount

FamilyName = Literal["httpx", "httpx2"]

# What an httpx client raises for each kind of failure of ours. What is not here is raised as it is; refusals are
# responses.
_EXCEPTION_NAMES = {
    "deadline": "ReadTimeout",
    "first_token_timeout": "ReadTimeout",
    "idle_timeout": "ReadTimeout",
    "reader_stalled": "ReadError",
    "connect": "ConnectError",
    "connect_timeout": "ConnectTimeout",
    "transport": "ReadError",
    "truncated": "RemoteProtocolError",
    "request": "LocalProtocolError",
}


# What each of theirs means to the gate, raised by a client's own transport. What is not here is not repeated.
_KINDS_BEFORE_RESPONSE = {
    "ConnectError": "connect",
    "ConnectTimeout": "connect_timeout",
    "PoolTimeout": "pool",
    "ProxyError": "connect",
    "ReadTimeout": "first_token_timeout",
    "RemoteProtocolError": "transport",
    "WriteTimeout": "transport",
    "NetworkError": "transport",
}

# The same, once the answer had begun.
_KINDS_AFTER_RESPONSE = {"ReadTimeout": "idle_timeout", "RemoteProtocolError": "truncated"}

# Environment variables that set the authorities and the key log of a default TLS context.
_TLS_ENVIRONMENT = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")

# The ports that a request can have.
_PORTS = range(65536)

# How far causes are followed: an httpx error is four deep.
_MAX_CAUSE_DEPTH = 8


class HttpxFamily:
    """One of the two packages, imported."""

    def __init__(self, name: str) -> None:
        """Import the package."""
        self.name = name
        self.module: Any = importlib.import_module(name)
        self.response: Any = self.module.Response
        self.request_not_read: type[Exception] = self.module.RequestNotRead
        # The environment, and the settings of a default context made in it.
        self._default_tls: tuple[list[str | None], dict[str, Any]] | None = None
        # The classes of the network backends that transports of each class make.
        self._backends: dict[type, type] = {}
        self._utils: Any = importlib.import_module(f"{name}._utils")
        self._derived: dict[tuple[type, str], Any] = {}

    def derive(self, implementation: type, base: str) -> Any:
        """Return a class that inherits from `implementation` and from this package's class `base`.

        Each class is created once.
        """
        key = implementation, base
        if key not in self._derived:
            attributes = {"__module__": implementation.__module__, "__doc__": implementation.__doc__}
            bases = implementation, getattr(self.module, base)
            self._derived[key] = type(implementation.__name__, bases, attributes)
        return self._derived[key]

    def has_unread_body(self, request: Any) -> bool:
        """Whether a request's body is not in memory."""
        try:
            return request.content is None
        except self.request_not_read:
            return True

    def environment_mounts(self) -> list[Mount]:
        """Return the mounts that this family makes from the environment now, first match first.

        Raises:
            ConfigError: for a `NO_PROXY` that this family refuses; the message does not quote it.

        """
        try:
            mounts = sorted(self._proxies_by_pattern().items(), key=itemgetter(0))
            return [self._mount(pattern, proxy) for pattern, proxy in mounts if (pattern.port or 0) in _PORTS]
        except (self.module.InvalidURL, UnicodeError):
            text = (
                f"the environment variable NO_PROXY has an entry that {self.name} refuses: correct it, or set "
                "transport.proxy_from_env = false"
            )
            raise ConfigError(text, kind="config") from None

    def has_custom_mounts(self, mounts: dict[Any, Any]) -> bool:
        """Return whether a client's mounts differ from those of the present environment."""
        try:
            environment = self._proxies_by_pattern()
        except (self.module.InvalidURL, UnicodeError):
            return True
        if not any(mounts.values()) and not any(environment.values()):
            return False
        if mounts.keys() != environment.keys():
            return True
        return not all(self._uses_proxy(transport, environment[pattern]) for pattern, transport in mounts.items())

    def _proxies_by_pattern(self) -> dict[Any, str | None]:
        return {self._utils.URLPattern(key): proxy for key, proxy in self._utils.get_environment_proxies().items()}

    def _mount(self, pattern: Any, proxy: str | None) -> Mount:
        network = getattr(pattern, "network", None)
        # As it is sent: names that are not ASCII are encoded.
        host = self.module.URL(pattern.pattern).raw_host.decode("ascii") if pattern.host else ""
        return (pattern.scheme, host, pattern.port, None if network is None else str(network), proxy)

    def _uses_proxy(self, transport: Any, proxy: str | None) -> bool:
        """Return whether a mounted transport is the family's own one for a proxy (None: direct)."""
        if transport is None or proxy is None:
            return transport is None and proxy is None
        if type(transport) not in (self.module.HTTPTransport, self.module.AsyncHTTPTransport):
            return False
        pool = transport._pool  # noqa: SLF001 - nothing public says where a transport connects
        try:
            made = type(transport)(proxy=proxy, verify=getattr(pool, "_ssl_context", None) or True)
        except (ImportError, ValueError, self.module.InvalidURL):
            return False
        usual = made._pool  # noqa: SLF001
        return type(pool) is type(usual) and all(
            getattr(pool, name, None) == getattr(usual, name, None)
            for name in ("_proxy_url", "_proxy_headers", "_proxy_auth")
        )

    def ignores_proxies(self, *, trust_env: bool) -> bool:
        """Whether the environment has proxies, and a client was told to trust nothing from there."""
        return not trust_env and any(self._utils.get_environment_proxies().values())

    def has_custom_backend(self, transport: Any) -> bool:
        """Return whether a transport's network backend is not the one of its class."""
        kind = type(transport)
        if kind not in self._backends:
            # Without verification no authorities are loaded.
            self._backends[kind] = _backend_of(kind(verify=False))
        return _backend_of(transport) is not self._backends[kind]

    def custom_tls_settings(self, context: Any) -> list[str]:
        """Return the names of the settings that differ from the family's default TLS context.

        The default settings are cached. They are read again if the environment changed, or before a
        difference is reported.
        """
        if context is None:
            return []
        environment = [os.environ.get(name) for name in _TLS_ENVIRONMENT]
        if self._default_tls is not None and self._default_tls[0] == environment:
            own = tls_settings.differences(context, self._default_tls[1])
            if not own:
                return own
        default = tls_settings.read_settings(self.module.create_ssl_context())
        self._default_tls = environment, default
        return tls_settings.differences(context, default)

    def exception(self, error: Error, request: Any) -> Exception:
        """Return what this family's users expect for that failure, with ours as its cause.

        What the client's own transport raised is handed up as it is.
        """
        original = error.__cause__
        if isinstance(original, Exception):
            return original
        name = _EXCEPTION_NAMES.get(error.kind)
        if name is None:
            return error
        raised: Exception = getattr(self.module, name)(str(error), request=request)
        raised.__cause__ = error
        return raised

    def error_kind(self, error: Exception, *, begun: bool) -> str:
        """Return what an exception of a client's own transport means to the gate; `begun`: the answer had."""
        if isinstance(error, self.module.HTTPError):
            for cls in type(error).__mro__:
                kind = (_KINDS_AFTER_RESPONSE.get(cls.__name__) if begun else None) or _KINDS_BEFORE_RESPONSE.get(
                    cls.__name__
                )
                if kind == "connect" and _is_refused(error):
                    return "refused"
                if kind is not None:
                    return kind
        if isinstance(error, OSError):
            return "refused" if isinstance(error, ConnectionRefusedError) else "transport"
        return "request"


def _backend_of(transport: Any) -> type:
    return type(getattr(transport._pool, "_network_backend", None))  # noqa: SLF001


def _is_refused(error: BaseException) -> bool:
    """Whether the host answered that nobody listens there, at every address that was tried."""
    seen: BaseException | None = error
    for _ in range(_MAX_CAUSE_DEPTH):
        if seen is None:
            break
        if isinstance(seen, OSError) and seen.errno == errno.ECONNREFUSED:
            return True
        # What anyio raises where there were several addresses; without a class of that name there are no groups.
        parts = getattr(seen, "exceptions", None)
        if isinstance(parts, tuple) and parts:
            return all(isinstance(part, ConnectionRefusedError) for part in parts)
        seen = seen.__cause__ or seen.__context__
    return False


@functools.cache
def family_named(name: str) -> HttpxFamily:
    """Return the family of that name; ImportError where it is not installed."""
    return HttpxFamily(name)


def family_of(client: object) -> HttpxFamily | None:
    """Return the family an httpx client belongs to, or None for any other object."""
    for cls in type(client).__mro__:
        name = cls.__module__.partition(".")[0]
        if name in ("httpx", "httpx2"):
            return family_named(name)
    return None


def family_or_default(name: FamilyName | None) -> HttpxFamily:
    """Return the family of that name; without one `httpx2` where it is installed, else `httpx`."""
    if name is not None:
        return family_named(name)
    for installed in ("httpx2", "httpx"):
        if importlib.util.find_spec(installed) is not None:
            return family_named(installed)
    raise ImportError("this needs httpx2 or httpx: pip install httpx2")


def environment_mounts() -> list[Mount] | None:
    """Return the environment's mounts for the preferred family; None if neither is installed."""
    try:
        return family_or_default(None).environment_mounts()
    except ImportError:
        return None


def environment_authorities() -> tuple[str | int | None, ...]:
    """Return a fingerprint of the TLS authorities that the environment names now."""
    file = os.environ.get("SSL_CERT_FILE")
    # A file takes the place of a folder.
    folder = None if file else os.environ.get("SSL_CERT_DIR")
    try:
        status = Path(file).stat() if file else None
    except (OSError, ValueError):
        status = None
    if status is None:
        return file, folder
    return file, folder, status.st_mtime_ns, status.st_size


def authorities_difference(gate: _native.Gate, *, trust_env: bool) -> str | None:
    """Return why a client made now may have other authorities than the gate; None if it has the same."""
    if os.environ.get("SSL_CERT_DIR") and not os.environ.get("SSL_CERT_FILE"):
        # The gate reads each file there, and httpx only those with hashed names.
        return "authorities from SSL_CERT_DIR"
    if not trust_env and os.environ.get("SSL_CERT_FILE"):
        return "trust_env=False, while the environment has SSL_CERT_FILE, which the gate trusts"
    if environment_authorities() != gate.authorities:
        return "authorities from a changed environment"
    return None
