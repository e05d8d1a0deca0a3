"""A server with the part of ollama's API that the examples use, which the simulator has not."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def ollama_server() -> Iterator[str]:
    """Runs the server, and yields its URL. It answers each `POST /api/chat`, streamed or not."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        words = ["The", " tide", " goes", " out."] if request["stream"] else ["The tide goes out."]
        self.send_response(200)
        self.send_header("content-type", "application/x-ndjson" if request["stream"] else "application/json")
        self.end_headers()
        for word in words:
            self.write(request["model"], word, done=word.endswith("."))

    def write(self, model: str, text: str, *, done: bool) -> None:
        message = {"role": "assistant", "content": text}
        line: dict[str, Any] = {"model": model, "created_at": "2026-01-01T00:00:00Z", "message": message, "done": done}
        self.wfile.write(json.dumps(line).encode() + b"\n")

    def log_message(self, *_: object) -> None:
        """Does nothing, so that requests are not logged."""
