"""Runs a server on loopback, for the examples that need another one than the simulator."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class PostHandler(BaseHTTPRequestHandler):
    """A handler of POST requests with a known content-length. Subclasses define `respond`."""

    def do_POST(self) -> None:
        """Reads the body of a request, and responds to it."""
        self.respond(self.rfile.read(int(self.headers.get("content-length", 0))))

    def respond(self, body: bytes) -> None:
        """Sends the response to a request with this body."""
        raise NotImplementedError

    def log_message(self, *_: object) -> None:
        """Does nothing, so that requests are not logged."""

    def answer(self, status: int, body: bytes) -> None:
        """Sends a whole answer with a JSON body."""
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Does nothing, so that no error is printed if a client closes the connection."""


@contextmanager
def serving(handler: type[PostHandler]) -> Iterator[str]:
    """Runs a server on a free port during a `with` block, and yields its URL."""
    server = _Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
