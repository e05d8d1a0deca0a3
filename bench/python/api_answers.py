"""Response bodies of the scripted upstream for each API: answers, first events, and errors."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

TEXT = "hello there"


def api_of(path: str) -> str:
    """Returns the API of a path: `responses`, `messages`, `bedrock`, `gemini`, `ollama` or `chat`."""
    path = path.partition("?")[0]
    if path.endswith(("/converse", "/converse-stream")):
        return "bedrock"
    if path.endswith("/api/chat"):
        return "ollama"
    if path.endswith("/responses"):
        return "responses"
    if path.endswith("/messages"):
        return "messages"
    return "gemini" if ":" in path.rpartition("/")[2] else "chat"


def stream_type(api: str) -> bytes:
    """Returns the content type of streams."""
    types = {"bedrock": b"application/vnd.amazon.eventstream", "ollama": b"application/x-ndjson"}
    return types.get(api, b"text/event-stream")


def whole(api: str) -> Any:
    """Returns the JSON body of a complete answer to a request that does not stream."""
    if api == "responses":
        message = {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [_output_text()],
        }
        return _response("completed", [message], {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11})
    if api == "messages":
        return {
            **_message(),
            "content": [{"type": "text", "text": TEXT}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 9, "output_tokens": 2},
        }
    if api == "bedrock":
        return {
            "output": {"message": {"role": "assistant", "content": [{"text": TEXT}]}},
            "stopReason": "end_turn",
            "usage": {"inputTokens": 9, "outputTokens": 2, "totalTokens": 11},
            "metrics": {"latencyMs": 1},
        }
    if api == "gemini":
        return {
            **_candidates(finishReason="STOP"),
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11},
        }
    if api == "ollama":
        return {**_line(done=True), "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 2}
    return {
        **_completion("chat.completion"),
        "service_tier": "default",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": TEXT}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
    }


def opening(api: str) -> bytes:
    """Returns the first events of a stream, up to and including its first text, as bytes."""
    if api == "responses":
        item = {"id": "m", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        place = {"output_index": 0, "item_id": "m", "content_index": 0}
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": _response("in_progress", [], None)},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.content_part.added", **place, "part": {**_output_text(), "text": ""}},
            {"type": "response.output_text.delta", **place, "delta": TEXT, "logprobs": []},
        ]
        numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
        return b"".join(_event(event, event["type"]) for event in numbered)
    if api == "messages":
        start = {**_message(), "content": [], "stop_reason": None, "usage": {"input_tokens": 9, "output_tokens": 1}}
        events = [
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}},
        ]
        return b"".join(_event(event, event["type"]) for event in events)
    if api == "bedrock":
        return _aws_event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": TEXT}})
    if api == "gemini":
        return _event(_candidates())
    if api == "ollama":
        return json.dumps(_line(done=False)).encode() + b"\n"
    delta = {"index": 0, "delta": {"role": "assistant", "content": TEXT}, "finish_reason": None}
    return _event({**_completion("chat.completion.chunk"), "choices": [delta]})


def error(api: str, status: int) -> Any:
    """Returns the JSON body of an error answer that clients regard as temporary."""
    message = f"scripted {status}"
    if api == "messages":
        kind = "rate_limit_error" if status == 429 else "api_error"  # noqa: PLR2004
        return {"type": "error", "error": {"type": kind, "message": message}}
    if api == "bedrock":
        return {"message": message}
    if api == "gemini":
        return {"error": {"code": status, "message": message, "status": "UNAVAILABLE"}}
    if api == "ollama":
        return {"error": message}
    return {"error": {"message": message, "type": "server_error", "param": None, "code": None}}


def _completion(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "small"}


def _message() -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "small", "stop_sequence": None}


def _line(*, done: bool) -> dict[str, Any]:
    message = {"role": "assistant", "content": TEXT}
    return {"model": "small", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": done}


def _candidates(**more: Any) -> dict[str, Any]:
    content = {"role": "model", "parts": [{"text": TEXT}]}
    return {"candidates": [{"content": content, "index": 0, **more}], "modelVersion": "small"}


def _output_text() -> dict[str, Any]:
    return {"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}


def _response(status: str, output: list[Any], usage: dict[str, Any] | None) -> dict[str, Any]:
    if usage is not None:
        usage = {
            **usage,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": "small",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }


def _event(data: dict[str, Any], name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def _aws_event(kind: str, data: dict[str, Any]) -> bytes:
    """Returns one encoded event of an AWS event stream."""
    fields = {":message-type": "event", ":event-type": kind, ":content-type": "application/json"}
    encoded = ((name.encode(), value.encode()) for name, value in fields.items())
    # The value type 7 is text.
    headers = b"".join(bytes([len(k)]) + k + b"\x07" + struct.pack(">H", len(v)) + v for k, v in encoded)
    payload = json.dumps(data).encode()
    lengths = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = lengths + struct.pack(">I", zlib.crc32(lengths)) + headers + payload
    return message + struct.pack(">I", zlib.crc32(message))
