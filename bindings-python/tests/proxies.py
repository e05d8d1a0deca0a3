"""The cases of `tests/vectors/proxies.json`, and servers that record which one a client uses."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from vectors import FOLDER

CASES: list[dict[str, Any]] = json.loads((FOLDER / "proxies.json").read_text(encoding="utf-8"))["cases"]
# 254 octets: resolvers reject such a name without a query.
NAME = ".".join([*(letter * 60 for letter in "abcd"), "x.example"])

WAIT = 30.0  # Seconds. Maximum wait of a server for a client. No result depends on it.


class Recorder:
    """A server on loopback that records each connection, as an HTTP or SOCKS proxy or as an origin.

    The server forwards nothing. It rejects CONNECT, SOCKS and TLS after it has recorded the
    connection.
    """

    def __init__(self, label: str, seen: list[str]) -> None:
        """Starts the server on a free port.

        For each connection, `label` and the client's credentials are appended to `seen`.
        """
        self._label = label
        self._seen = seen
        self.heads: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Host and port of the server."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """Stops the server."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(WAIT)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(WAIT)
            with connection, contextlib.suppress(OSError, IndexError):
                self._exchange(connection)

    def _exchange(self, connection: socket.socket) -> None:
        first = connection.recv(1)
        if first == b"\x05":
            self._note(_socks_credentials(connection))
            connection.sendall(b"\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00")
        elif first == b"\x16":
            self._note("")
        elif first:
            self._http(connection, first)

    def _http(self, connection: socket.socket, data: bytes) -> None:
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return
            data += more
        head = data.decode("latin-1")
        self.heads.append(head)
        credentials = ""
        for line in head.split("\r\n"):
            name, _, value = line.partition(": ")
            if name.lower() == "proxy-authorization":
                credentials = base64.b64decode(value.removeprefix("Basic ")).decode()
        self._note(credentials)
        status = "403 Forbidden" if head.startswith("CONNECT ") else "200 OK"
        connection.sendall(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())

    def _note(self, credentials: str) -> None:
        self._seen.append(f"{self._label} {credentials}".strip())


def _socks_credentials(connection: socket.socket) -> str:
    """Returns the user and password that a SOCKS5 client sends (RFC 1929), or an empty text."""
    with connection.makefile("rb") as reader:
        methods = reader.read(reader.read(1)[0])
        credentials = ""
        if 2 in methods:
            connection.sendall(b"\x05\x02")
            reader.read(1)
            user = reader.read(reader.read(1)[0])
            password = reader.read(reader.read(1)[0])
            credentials = f"{user.decode()}:{password.decode()}"
            connection.sendall(b"\x01\x00")
        else:
            connection.sendall(b"\x05\x00")
        reader.read(1)
        return credentials


class Network:
    """Two proxies, `a` and `b`, and an origin, with a record of the connections to them."""

    def __init__(self) -> None:
        """Starts the two proxies and the origin."""
        self.seen: list[str] = []
        self.a = Recorder("a", self.seen)
        self.b = Recorder("b", self.seen)
        self.origin = Recorder("direct", self.seen)

    def fill(self, text: str) -> str:
        """Returns `text` with each placeholder replaced, for example `{a}` by proxy a's address."""
        for name, value in (
            ("a", self.a.address),
            ("b", self.b.address),
            ("aport", str(self.a.port)),
            ("port", str(self.origin.port)),
            ("name", NAME),
            ("NAME", NAME.upper()),
        ):
            text = text.replace(f"{{{name}}}", value)
        return text

    def connection_of(self, get: Any, url: str, failures: tuple[type[Exception], ...]) -> str:
        """Calls `get(url)`, and returns the server that it connects to.

        The server is `a` or `b`, followed by the credentials that the client sent, or `direct`.
        Exceptions of the classes `failures` are ignored.
        """
        self.seen.clear()
        with contextlib.suppress(*failures):
            get(url)
        return " then ".join(self.seen) or "direct"

    def close(self) -> None:
        """Stops the two proxies and the origin."""
        for one in (self.a, self.b, self.origin):
            one.close()


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Runs two proxies and an origin during the tests of a module, and yields them."""
    network = Network()
    yield network
    network.close()


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Sets the given proxy variables and removes all others, until the end of the `with` block."""
    names = [name for name in os.environ if name.lower().endswith("_proxy") or name == "REQUEST_METHOD"]
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        yield
