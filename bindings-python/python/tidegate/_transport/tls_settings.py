"""Comparison of a TLS context with the default context of its httpx package.

The gate's own connections verify servers as the default context does. They support no other
setting. So a client keeps its own transport if its context differs in any setting, or if a setting
cannot be read.

Most settings have attributes or methods that return them. Other settings change the ClientHello
that the context makes: groups, signature algorithms, pre-shared keys. A client certificate is
detected by a handshake in memory. Nothing is sent.
"""

from __future__ import annotations

import inspect
import ssl
import struct
from typing import Any

_SUPPORTED_GROUPS, _SIGNATURE_ALGORITHMS = 10, 13
# Extensions of a ClientHello that are not compared: httpx sets ALPN before each handshake.
_ALPN, _PADDING = 16, 21
# Extensions with random parts: only their lengths are compared.
_PRE_SHARED_KEY, _KEY_SHARE = 41, 51

# OpenSSL's reason if a server has no certificate for the cipher suites that the client offers.
_NO_CERTIFICATE = "NO_SHARED_CIPHER"

# Attributes that each truststore context creates: the inner context, which is compared separately,
# and its lock.
_PARTS_OF_TRUSTSTORE = ("_ctx", "_ctx_lock")


def read_settings(context: Any) -> dict[str, Any]:
    """Returns the value of each setting of a TLS context by its name.

    The value of a setting that cannot be read is an `_Unreadable`.
    """
    inner = _inner(context)
    kind = type(inner)
    names = [name for name in dir(kind) if not name.startswith("__")]
    found = {name: _read(getattr, inner, name) for name in names if _is_attribute(kind, name)}
    authorities = _read(lambda: frozenset(inner.get_ca_certs(binary_form=True)))
    if not authorities and inner is context:
        # OpenSSL reads a folder of authorities during handshakes, and does not list it.
        authorities = _Unreadable()
    return {
        **found,
        "class": type(context),
        "attributes": _read(_instance_attributes, inner),
        "attributes of truststore": None if inner is context else _read(_instance_attributes, context),
        "ciphers": _read(inner.get_ciphers),
        "certificate store": _read(inner.cert_store_stats),
        "authorities": authorities,
        "ClientHello": _read(lambda: _comparable(_client_hello(inner))),
    }


def differences(context: Any, default: dict[str, Any]) -> list[str]:
    """Returns the sorted names of the settings in which a context differs from the default.

    `default` has the settings of the default context, as `read_settings` returns them.
    """
    if type(context) is not default["class"]:
        return ["class"]
    own = read_settings(context)
    found = {name for name in own if own[name] != default.get(name)}
    # SSLKEYLOGFILE and OpenSSL's configuration file set these on the default context too.
    if own.get("keylog_filename") is not None:
        found.add("keylog_filename")
    if own.get("minimum_version") == ssl.TLSVersion.TLSv1_3:
        found.add("minimum_version")
    if not found and _has_certificate(_inner(context)):
        found.add("client certificate")
    return sorted(found)


class _Unreadable:
    """The value of a setting that cannot be read. It equals no other value."""


def _inner(context: Any) -> Any:
    """Returns the `ssl.SSLContext` that a truststore context wraps, or the context itself."""
    return context._ctx if type(context).__module__.startswith("truststore.") else context  # noqa: SLF001


def _read(read: Any, *arguments: Any) -> Any:
    """Returns the result of `read`, or an `_Unreadable` if it raises."""
    try:
        return read(*arguments)
    except Exception:  # noqa: BLE001 - replaced classes may raise anything
        return _Unreadable()


def _is_attribute(kind: type, name: str) -> bool:
    """Returns `True` if the attribute `name` of the class `kind` is a property or a slot."""
    return inspect.isdatadescriptor(inspect.getattr_static(kind, name))


def _instance_attributes(context: Any) -> dict[str, Any]:
    """Returns the attributes of a context instance by name. Classes are replaced by their names.

    The package truststore creates new classes for each context. With their names instead, two equal
    contexts have equal attributes.
    """
    return {
        name: (value.__module__, value.__qualname__) if isinstance(value, type) else value
        for name, value in vars(context).items()
        if name not in _PARTS_OF_TRUSTSTORE
    }


def _client_hello(context: Any) -> bytes:
    """Returns the TLS record of the first message that a client with this context sends."""
    outgoing = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="default.invalid").do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise ValueError("the handshake ended without a server")


def _comparable(hello: bytes) -> tuple[Any, ...]:
    """Returns the parts of a ClientHello that are the same in each handshake of a context.

    The parts are version, cipher suites, compression methods, and extensions by number. Of
    extensions with random content, only the length is included.
    """
    # Record header, message header, version, random bytes, session identifier.
    version, position = hello[9:11], 5 + 4 + 2 + 32
    position += 1 + hello[position]
    suites, position = _vector(hello, position, 2)
    compression, position = _vector(hello, position, 1)
    rest, _ = _vector(hello, position, 2)
    extensions: dict[int, bytes | int] = {}
    position = 0
    while position < len(rest):
        number = int.from_bytes(rest[position : position + 2], "big")
        data, position = _vector(rest, position + 2, 2)
        if number not in (_ALPN, _PADDING):
            extensions[number] = len(data) if number in (_PRE_SHARED_KEY, _KEY_SHARE) else data
    return version, suites, compression, extensions


def _vector(data: bytes, position: int, width: int) -> tuple[bytes, int]:
    """Reads a TLS vector: a length of `width` bytes, then the content.

    Returns the content, and the position after it. Raises `ValueError` if `data` is too short.
    """
    begin = position + width
    end = begin + int.from_bytes(data[position:begin], "big")
    if end > len(data):
        raise ValueError("the message is truncated")
    return data[begin:end], end


def _has_certificate(context: Any) -> bool:
    """Returns `True` if the context has a client certificate, or if that cannot be determined.

    `ssl.SSLContext` has no method for this. The function makes a server in memory and assigns the
    context to it, which copies the certificates of the context to the server. The server answers a
    ClientHello only if it has a certificate. The context is not changed.
    """
    incoming = ssl.MemoryBIO()
    incoming.write(_ANY_CERTIFICATE)
    try:
        server = type(context)(ssl.PROTOCOL_TLS_SERVER).wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
        server.context = context
        server.do_handshake()
    except Exception as error:  # noqa: BLE001 - any other error gives no answer
        return getattr(error, "reason", None) != _NO_CERTIFICATE
    return True


def _any_certificate() -> bytes:
    """Returns a TLS 1.2 ClientHello that accepts certificates with a key of any type and curve."""

    def vector(width: int, data: bytes) -> bytes:
        return len(data).to_bytes(width, "big") + data

    def numbers(*values: int) -> bytes:
        return vector(2, struct.pack(f">{len(values)}H", *values))

    # ECDHE-ECDSA and ECDHE-RSA with AES-GCM, AES-CBC and ChaCha20.
    suites = numbers(0xC02B, 0xC02C, 0xC02F, 0xC030, 0xC009, 0xC00A, 0xC013, 0xC014, 0xCCA8, 0xCCA9)
    groups = numbers(*range(1, 39))
    # RSA-PSS and EdDSA, then RSA and ECDSA with each hash.
    algorithms = numbers(*range(0x0804, 0x080D), *(h << 8 | s for h in range(2, 7) for s in (1, 3)))
    extensions = ((_SUPPORTED_GROUPS, groups), (_SIGNATURE_ALGORITHMS, algorithms))
    tail = b"".join(struct.pack(">H", number) + vector(2, data) for number, data in extensions)
    body = b"\x03\x03" + bytes(32) + vector(1, b"") + suites + vector(1, b"\0") + vector(2, tail)
    return b"\x16\x03\x01" + vector(2, b"\x01" + vector(3, body))


_ANY_CERTIFICATE = _any_certificate()
