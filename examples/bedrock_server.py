"""A server that answers every call as Amazon Bedrock's Converse does, which the simulator does not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from loopback_server import PostHandler, serving

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

ANSWER = json.dumps(
    {
        "output": {"message": {"role": "assistant", "content": [{"text": "at noon"}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 9, "outputTokens": 2, "totalTokens": 11},
        "metrics": {"latencyMs": 1},
    }
).encode()


class _Handler(PostHandler):
    protocol_version = "HTTP/1.1"

    def respond(self, _: bytes) -> None:
        self.answer(200, ANSWER)


def bedrock_server() -> AbstractContextManager[str]:
    """Returns a context manager that runs the server, and yields its URL."""
    return serving(_Handler)
