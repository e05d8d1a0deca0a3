"""A server that answers every call as Amazon Bedrock's Converse does, which the simulator does not."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWER = json.dumps(
    {
        "output": {"message": {"role": "assistant", "content": [{"text": "at noon"}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 9, "outputTokens": 2, "totalTokens": 11},
        "metrics": {"latencyMs": 1},
    }
).encode()


class Handler(BaseHTTPRequestHandler):
    """Answers each POST request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Reads the request, and sends the answer."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_: object) -> None:
        """Does nothing, so that requests are not logged."""


@contextmanager
def bedrock_server() -> Iterator[str]:
    """Runs the server, and yields its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
