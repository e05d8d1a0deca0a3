"""An upstream that is never the bottleneck, in its own process.

A bare asyncio protocol writes fixed answers. `POST /v1/chat/completions` answers a small
completion; `POST /sse/N/GAP_MS` streams N events, one every GAP_MS milliseconds. Prints its port,
then serves until standard input is closed.
"""

from __future__ import annotations

import asyncio
import json
import sys

COMPLETION = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "small",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello there"}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
    }
).encode()
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(COMPLETION),
    COMPLETION,
)
EVENT = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"small",'
    b'"choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'
)
LAST = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"small",'
    b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunked(data: bytes) -> bytes:
    """Returns `data` as one chunk of a response body in chunked transfer encoding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


CHUNK, END = chunked(EVENT), chunked(LAST) + b"0\r\n\r\n"


class Protocol(asyncio.Protocol):
    """The server's side of one connection: parses requests, and writes the fixed answers.

    A request with a body must have a `content-length`.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport of the new connection."""
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        """Answers each request that has arrived completely, and stores an incomplete one."""
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            self.buffer = self.buffer[end + 4 + length :]
            path = head.split(b" ", 2)[1].split(b"/")
            if path[1] == b"sse":
                self.transport.write(STREAM)
                self.send(int(path[2]), int(path[3]) / 1000)
            else:
                self.transport.write(ANSWER)

    def send(self, left: int, gap: float) -> None:
        """Sends one event, and schedules the next one after `gap` seconds.

        `left` is the number of events still to send. The last event also ends the stream.
        """
        if self.transport.is_closing():
            return
        self.transport.write(CHUNK if left > 1 else CHUNK + END)
        if left > 1:
            asyncio.get_running_loop().call_later(gap, self.send, left - 1, gap)


async def main() -> None:
    """Prints the port, and serves until standard input is closed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Protocol, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    try:
        import uvloop

        uvloop.run(main())
    except ImportError:
        asyncio.run(main())
