"""The packages `httpx` and `httpx2`, which have the same interface.

A package is imported on first use.
"""

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

# The httpx exception for each kind of failure. Other failures are raised unchanged, and rejections
# are responses.
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


# The kind of failure for each exception of a custom transport before the response began. Other
# exceptions are not retried.
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

# The kinds that differ after the response began.
_KINDS_AFTER_RESPONSE = {"ReadTimeout": "idle_timeout", "RemoteProtocolError": "truncated"}

# Environment variables that set the authorities and the key log of a default TLS context.
_TLS_ENVIRONMENT = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")

# The ports that a request can have.
_PORTS = range(65536)

# Maximum length of a chain of causes. Those of httpx have four errors.
_MAX_CAUSE_DEPTH = 8


class HttpxFamily:
    """One of the packages `httpx` and `httpx2`, which is imported when the object is created.

    The methods create classes from the package's classes, find custom settings of its clients, and
    translate exceptions.
    """

    def __init__(self, name: str) -> None:
        """Imports the package `name`: `httpx` or `httpx2`."""
        self.name = name
        self.module: Any = importlib.import_module(name)
        self.response: Any = self.module.Response
        self.request_not_read: type[Exception] = self.module.RequestNotRead
        # The streams that a client puts around those of a transport. None if they have other names.
        client: Any = importlib.import_module(f"{name}._client")
        self.bound_stream: type | None = getattr(client, "BoundSyncStream", None)
        self.async_bound_stream: type | None = getattr(client, "BoundAsyncStream", None)
        # The environment, and the settings of the default context in it.
        self._default_tls: tuple[list[str | None], dict[str, Any]] | None = None
        # The class of the default network backend for each class of transport.
        self._backends: dict[type, type] = {}
        self._utils: Any = importlib.import_module(f"{name}._utils")
        self._derived: dict[tuple[type, str], Any] = {}

    def derive(self, implementation: type, base: str) -> Any:
        """Returns a subclass of `implementation` and of this package's class named `base`.

        The class is created at the first call and cached.
        """
        key = implementation, base
        if key not in self._derived:
            attributes = {"__module__": implementation.__module__, "__doc__": implementation.__doc__, "_family": self}
            bases = implementation, getattr(self.module, base)
            self._derived[key] = type(implementation.__name__, bases, attributes)
        return self._derived[key]

    def has_unread_body(self, request: Any) -> bool:
        """Returns `True` if the body of a request is a stream that is not in memory."""
        try:
            return request.content is None
        except self.request_not_read:
            return True

    def environment_mounts(self) -> list[Mount]:
        """Returns the mounts for the proxies of the environment, as this package creates them.

        The mounts are in order of precedence: the first one whose pattern matches a URL applies.

        Raises:
            ConfigError: If this package rejects `NO_PROXY`. The message does not quote the value.

        """
        try:
            mounts = sorted(self._proxies_by_pattern().items(), key=itemgetter(0))
            return [self._mount(pattern, proxy) for pattern, proxy in mounts if (pattern.port or 0) in _PORTS]
        except (self.module.InvalidURL, UnicodeError):
            text = (
                f"the environment variable NO_PROXY has an entry that {self.name} rejects: correct it, or set "
                "transport.proxy_from_env = false"
            )
            raise ConfigError(text, kind="config") from None

    def has_custom_mounts(self, mounts: dict[Any, Any]) -> bool:
        """Returns `True` if a client's mounts differ from those for the proxies of the environment.

        The environment is read now. Also returns `True` if this package rejects `NO_PROXY`.
        """
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
        """Returns the proxy URL that the environment sets for each URL pattern.

        The URL is None for a direct connection.
        """
        return {self._utils.URLPattern(key): proxy for key, proxy in self._utils.get_environment_proxies().items()}

    def _mount(self, pattern: Any, proxy: str | None) -> Mount:
        """Returns the parts of a mount, in the form that the native module reads.

        A mount assigns a proxy to the URLs that match `pattern`. `proxy` is the URL of the proxy,
        or None for a direct connection.
        """
        network = getattr(pattern, "network", None)
        # The host as it is sent, with names that are not ASCII encoded.
        host = self.module.URL(pattern.pattern).raw_host.decode("ascii") if pattern.host else ""
        return (pattern.scheme, host, pattern.port, None if network is None else str(network), proxy)

    def _uses_proxy(self, transport: Any, proxy: str | None) -> bool:
        """Returns `True` if a mounted transport is the package's default transport for a proxy URL.

        `proxy` is None for a direct connection.
        """
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
        """Returns `True` if a client with this `trust_env` ignores proxies of the environment.

        This is the case if `trust_env` is false and an environment variable names a proxy.
        """
        return not trust_env and any(self._utils.get_environment_proxies().values())

    def has_custom_backend(self, transport: Any) -> bool:
        """Returns `True` if the network backend of a transport is not of the default class."""
        kind = type(transport)
        if kind not in self._backends:
            # Without verification, no authorities are loaded.
            self._backends[kind] = _backend_of(kind(verify=False))
        return _backend_of(transport) is not self._backends[kind]

    def custom_tls_settings(self, context: Any) -> list[str]:
        """Returns the names of the settings in which a TLS context differs from the default.

        Returns an empty list if `context` is None. The default settings are cached. They are read
        again if the environment has changed, and before a difference is reported.
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

    def exception(self, error: Error, request: Any) -> BaseException:
        """Returns the exception that users of this package expect for an error of the gate.

        The error becomes the cause of the exception. An exception of the client's own transport is
        returned unchanged, and so is an error without a counterpart in httpx.
        """
        original = error.__cause__
        if original is not None:
            return original
        name, text = _EXCEPTION_NAMES.get(error.kind), str(error)
        if error.reason == "client_timeout":
            name = "PoolTimeout"
        if name is None:
            return error
        if error.kind == "request" and request.url.scheme not in ("http", "https"):
            name, text = "UnsupportedProtocol", _unsupported_protocol(request.url.scheme)
        raised: Exception = getattr(self.module, name)(text, request=request)
        raised.__cause__ = error
        return raised

    def error_kind(self, error: BaseException, *, begun: bool, outer: BaseException | None) -> str:
        """Returns the gate's failure kind for an exception from a client's own transport.

        Args:
            error: The exception.
            begun: Whether the head of the response had arrived before the exception.
            outer: The exception that the program was handling before the attempt, or None. Python
                appends it to the context of `error`, but it did not cause the error.

        Returns:
            The name of a failure kind, such as `connect` or `transport`; `request` for an exception
            after which the gate does not retry.

        """
        if isinstance(error, self.module.HTTPError):
            for cls in type(error).__mro__:
                kind = (_KINDS_AFTER_RESPONSE.get(cls.__name__) if begun else None) or _KINDS_BEFORE_RESPONSE.get(
                    cls.__name__
                )
                if kind == "connect" and is_refused(error, outer):
                    return "refused"
                if kind is not None:
                    return kind
        if isinstance(error, OSError):
            return "refused" if isinstance(error, ConnectionRefusedError) else "transport"
        return "request"


def _unsupported_protocol(scheme: str) -> str:
    """Returns httpx's message about a URL whose scheme is not HTTP, or that has none."""
    if not scheme:
        return "Request URL is missing an 'http://' or 'https://' protocol."
    return f"Request URL has an unsupported protocol '{scheme}://'."


def _backend_of(transport: Any) -> type:
    """Returns the class of the network backend of an httpx transport."""
    return type(getattr(transport._pool, "_network_backend", None))  # noqa: SLF001


def is_refused(error: BaseException, outer: BaseException | None) -> bool:
    """Returns `True` if `error`, or an error that caused it, is a refused connection.

    If several addresses of the host were tried, each of them must have refused it. `outer` is the
    exception that the program was handling before the attempt, which is no cause.
    """
    seen: BaseException | None = error
    for _ in range(_MAX_CAUSE_DEPTH):
        if seen is None or seen is outer:
            break
        if isinstance(seen, OSError) and seen.errno == errno.ECONNREFUSED:
            return True
        # anyio raises an exception group if the host has several addresses.
        parts = getattr(seen, "exceptions", None)
        if isinstance(parts, tuple) and parts:
            return all(isinstance(part, ConnectionRefusedError) for part in parts)
        seen = seen.__cause__ or seen.__context__
    return False


@functools.cache
def family_named(name: str) -> HttpxFamily:
    """Returns the package with the given name, `httpx` or `httpx2`. Imports it at the first call.

    Raises:
        ImportError: If the package is not installed.

    """
    return HttpxFamily(name)


def family_of(client: object) -> HttpxFamily | None:
    """Returns the package of an httpx client, or None if the object is not an httpx client."""
    for cls in type(client).__mro__:
        name = cls.__module__.partition(".")[0]
        if name in ("httpx", "httpx2"):
            return family_named(name)
    return None


def family_or_default(name: FamilyName | None) -> HttpxFamily:
    """Returns the package with the given name.

    If `name` is None, returns `httpx2` if it is installed, otherwise `httpx`.

    Raises:
        ImportError: If the package is not installed.

    """
    if name is not None:
        return family_named(name)
    for installed in ("httpx2", "httpx"):
        if importlib.util.find_spec(installed) is not None:
            return family_named(installed)
    raise ImportError("neither httpx2 nor httpx is installed: pip install httpx2")


def environment_mounts() -> list[Mount] | None:
    """Returns the mounts for the proxies of the environment, as the default package creates them.

    The default package is `httpx2` if it is installed, otherwise `httpx`. Returns None if neither
    is installed.
    """
    try:
        return family_or_default(None).environment_mounts()
    except ImportError:
        return None


def environment_authorities() -> tuple[str | int | None, ...]:
    """Returns a value that identifies the TLS authorities that environment variables select.

    Two values differ if the variables, or the file that they name, have changed in between.
    """
    file = os.environ.get("SSL_CERT_FILE")
    # A file overrides a directory.
    folder = None if file else os.environ.get("SSL_CERT_DIR")
    try:
        status = Path(file).stat() if file else None
    except (OSError, ValueError):
        status = None
    if status is None:
        return file, folder
    return file, folder, status.st_mtime_ns, status.st_size


def authorities_difference(gate: _native.Gate, *, trust_env: bool) -> str | None:
    """Returns the reason why a new httpx client may trust other TLS authorities than the gate.

    Returns None if both trust the same authorities. `trust_env` is the client's setting: whether it
    reads environment variables.
    """
    if os.environ.get("SSL_CERT_DIR") and not os.environ.get("SSL_CERT_FILE"):
        # The gate reads each file in the directory, and httpx only files with hashed names.
        return "authorities from SSL_CERT_DIR"
    if not trust_env and os.environ.get("SSL_CERT_FILE"):
        return "trust_env=False, but the gate trusts SSL_CERT_FILE of the environment"
    if environment_authorities() != gate.authorities:
        return "authorities from a changed environment"
    return None
