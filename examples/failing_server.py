"""A server that answers every call with status 500, and counts the attempts."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from loopback_server import PostHandler, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

ERROR = json.dumps({"error": {"message": "it never works", "type": "server_error", "code": None}}).encode()


@contextmanager
def failing_server() -> Iterator[tuple[str, Counter[tuple[str, bytes]]]]:
    """Runs the server, and yields its URL and a counter of the attempts by path and body."""
    attempts: Counter[tuple[str, bytes]] = Counter()
    counting = threading.Lock()

    class Handler(PostHandler):
        protocol_version = "HTTP/1.1"

        def respond(self, body: bytes) -> None:
            with counting:
                attempts[self.path, body] += 1
            self.answer(500, ERROR)

    with serving(Handler) as url:
        yield url, attempts
