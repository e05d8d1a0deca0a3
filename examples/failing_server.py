"""A server that answers every call with status 500, and counts the attempts."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ERROR = json.dumps({"error": {"message": "it never works", "type": "server_error", "code": None}}).encode()


@contextmanager
def failing_server() -> Iterator[tuple[str, Counter[tuple[str, bytes]]]]:
    """Runs the server, and yields its URL and a counter of the attempts by path and body."""
    attempts: Counter[tuple[str, bytes]] = Counter()
    counting = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            with counting:
                attempts[self.path, body] += 1
            self.send_response(500)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(ERROR)))
            self.end_headers()
            self.wfile.write(ERROR)

        def log_message(self, *_: object) -> None:
            """Does nothing, so that requests are not logged."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Does nothing, so that no error is printed if a client closes the connection."""

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", attempts
    finally:
        server.shutdown()
        server.server_close()
