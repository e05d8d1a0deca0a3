"""A server with the part of ollama's API that the examples use, which the simulator has not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from loopback_server import PostHandler, serving

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class _Handler(PostHandler):
    def respond(self, body: bytes) -> None:
        request = json.loads(body)
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


def ollama_server() -> AbstractContextManager[str]:
    """Returns a context manager that runs the server, and yields its URL.

    The server answers each `POST /api/chat`, streamed or not.
    """
    return serving(_Handler)
