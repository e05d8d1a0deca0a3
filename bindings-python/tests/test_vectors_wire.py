"""Runs the shared vectors of provider responses on calls through a gate."""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai
import pytest

import tidegate
from httpx_packages import INSTALLED, module
from upstream import Exchange, Handler, Upstream, answer
from vectors import Case, body, every, http, only_target, pieces, since, splits

try:
    import anthropic
except ImportError:  # cannot be installed with openai 2.x; the plain client reads its streams there
    anthropic = None

# The local clock of the cases: Fri, 21 Nov 2025 08:48:00 GMT.
UNIX_TIME = 1763714880
# Longer delays affect the call, but not the target.
LONGEST_MS = 24 * 3600 * 1000
# Seconds. Shorter delays are waited for. Delays between the two are neither waited for nor cut by
# a deadline, because machines may be slow.
SHORT_MS = 100
LONG_MS = 10_000

PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_completions": "/v1/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
    "gemini": "/v1beta/models/m:generateContent",
    "other": "/v1/embeddings",
}
# The shortest complete stream of each dialect.
ENDS = {
    "openai_chat": b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
    "openai_completions": b'data: {"choices":[{"index":0,"text":"","finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
    "openai_responses": b'data: {"type":"response.completed","response":{}}\n\n',
    "anthropic_messages": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    "gemini": b'data: {"candidates":[{"finishReason":"STOP"}]}\n\n',
}


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    with Upstream() as server:
        yield server


def underscored(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("-", "_"): value for name, value in headers.items()}


def with_status(status: int, headers: dict[str, str], data: bytes) -> Handler:
    async def handler(exchange: Exchange) -> None:
        await exchange.head(status, content_length=str(len(data)), **underscored(headers))
        exchange.writer.write(data)

    return handler


@dataclass
class Failing:
    """A failure of an upstream, and the expected classification."""

    server: Upstream
    handler: Handler
    data: bytes
    expected: Case
    # Seconds by which a delay may exceed the expected one.
    rounded: float = 0

    def check(self, path: str, *, safe: bool = True) -> None:
        """Makes a call. `safe` is whether its method may be retried."""
        delay, retryable = self.expected["delay_ms"], self.expected["retryable"]
        # A full target is full for other calls too, even if this one must not be repeated.
        is_full = self.expected["class"] in ("rate_limited", "overloaded")
        cooled = (retryable or is_full) and delay is not None and delay <= LONGEST_MS
        too_long = delay is not None and delay > LONG_MS
        allowed = 1 if delay is not None and SHORT_MS < delay <= LONG_MS else 2
        if not retryable:
            why, attempts = "final", 1
        elif not safe and not self.expected["never_executed"]:
            why, attempts = "unsafe", 1
        elif too_long:
            why, attempts = "deadline", 1
        else:
            why, attempts = "attempts", allowed

        gate = tidegate.Gate(defaults={"retry": {"attempts": allowed, "base": "1ms", "max": "1ms"}})
        self.server.handler = self.handler
        requests, began = since(self.server), time.monotonic()
        with http(gate) as client, tidegate.context(deadline=min(delay / 2000, 600) if too_long else 600):
            response = client.post(self.server.url + path, json={"model": "m", "stream": True})
            assert response.content == self.data
            assert response.headers["x-should-retry"] == "false"
            assert requests() == attempts
            target = only_target(gate)
            assert (target["gave_up"], target["failed_attempts"]) == ({why: 1}, {self.expected["class"]: attempts})
            assert target["cool_downs"] == ({"retry_after": attempts} if cooled else {})
            if not cooled:
                return
            left = [target["cool_for"] or 0]
            if too_long:
                # Another call is rejected at once, with a Retry-After.
                refused = client.post(self.server.url + path, json={"model": "m"})
                error = refused.json()["error"]
                assert (refused.status_code, error["code"]) == (429, "cool_down")
                left.append(error["retry_after"])
            past = time.monotonic() - began
            least, most = delay / 1000 - past, delay / 1000 + min(delay / 10_000, 1) + 0.02 + self.rounded
            assert all(least <= seconds <= most for seconds in left)
            assert requests() == attempts


@every("classify")
def test_classify(case: Case, server: Upstream) -> None:
    content, headers = body(case.get("body")), case.get("headers", {})
    if "status" not in case:
        # A stream whose first event is an error.
        content = b"event: error\ndata: %s\n\n" % content
        failing = Failing(server, pieces(content, content_type="text/event-stream"), content, case["verdict"])
        path = PATHS["openai_responses" if "Responses" in case["name"] else "openai_chat"]
    else:
        failing = Failing(server, with_status(case["status"], headers, content), content, case["verdict"])
        path = PATHS["openai_chat"]
    if case.get("status", 400) < 400:
        # A redirect is not a failure, because the client follows it.
        server.handler = failing.handler
        gate = tidegate.Gate()
        assert http(gate).post(server.url + path, json={}).status_code == case["status"]
        assert only_target(gate)["failed_attempts"] == {}
        return
    failing.check(path)
    failing.check("/v1/made/up", safe=False)


@every("retry_after")
def test_retry_after(case: Case, server: Upstream) -> None:
    headers, content = dict(case.get("headers", {})), body(case.get("body"))
    wall, rounded = case.get("wall", UNIX_TIME), 0
    if "date" not in headers:
        headers["date"] = email.utils.formatdate(wall, usegmt=True)
    elif case["name"] == "date beside a broken Date":
        # A time relative to this machine's clock, rounded up to whole seconds.
        ahead = email.utils.parsedate_to_datetime(headers["retry-after"]).timestamp() - wall
        headers["retry-after"] = email.utils.formatdate(ahead + math.ceil(time.time()), usegmt=True)
        rounded = 1
    expected = {"class": "rate_limited", "retryable": True, "never_executed": True, "delay_ms": case["delay_ms"]}
    Failing(server, with_status(429, headers, content), content, expected, rounded).check(PATHS["openai_chat"])


@every("request_facts")
def test_request_facts(case: Case, server: Upstream) -> None:
    facts, method = case["facts"], case.get("method", "POST")
    dialect, known = facts["dialect"], facts["dialect"] != "other"
    gate = tidegate.Gate(defaults={"retry": {"attempts": 2, "base": "1ms", "max": "1ms"}})
    client = http(gate)
    content = {"content": body(case["body"])} if "body" in case else {}

    def outcome(handler: Handler) -> str:
        server.handler = handler
        try:
            client.request(method, server.url + case["path"], headers=case.get("headers", {}), **content)
        except module(INSTALLED[-1]).RemoteProtocolError:
            pass
        return str(gate.calls()[-1]["outcome"]) if gate.calls() else "beside"

    requests = since(server)
    failed = outcome(answer({}, status=500))
    assert requests() == (2 if facts["repeatable"] else 1)
    assert failed == ("failed" if facts["route"] == "inference" else "beside")
    if facts["route"] != "inference":
        return
    assert gate.calls()[-1]["model"] == facts["model"]
    # Without a content type, the response to a streaming request is read as a stream. It has no end,
    # or is a JSON body.
    assert outcome(pieces(b"{}\n")) == ("truncated" if known and facts["stream"] else "completed")
    for name, end in ENDS.items():
        ends = not known or name == dialect or {name, dialect} == {"openai_chat", "openai_completions"}
        found = outcome(pieces(end, content_type="text/event-stream"))
        assert found == ("completed" if ends else "truncated"), name


BROKEN = (
    openai.APIConnectionError,
    *([anthropic.APIConnectionError] if anthropic else []),
    *(module(name).RemoteProtocolError for name in INSTALLED),
)


def read(asked: Any) -> tuple[bytes, bool]:
    """Reads a raw response. Returns whether it ended properly."""
    data = b""
    try:
        with asked as response:
            for chunk in getattr(response, "http_response", response).iter_raw():
                data += chunk
    except BROKEN:
        return data, False
    return data, True


@every("sse")
def test_sse(case: Case, server: Upstream) -> None:
    """Bytes pass unchanged and the end is detected, wherever the body is cut into chunks."""
    # An event with an error makes the response a failed one, although it is complete.
    failed = any('"error": {\n' in event["data"] for event in case["events"])
    stream = case["bytes"].encode("latin-1") + b"\n\n" + ENDS["openai_chat"]
    # Failures hold a target back, which other tests check.
    ways = splits(stream[: -len(ENDS["openai_chat"])], 1 if failed else 25)
    gate = tidegate.Gate(defaults={"retry": {"attempts": 1}})
    sdk = gate.wrap(openai.OpenAI(base_url=f"{server.url}/v1", api_key="k"))
    for chunks in ways:
        server.handler = pieces(*chunks, ENDS["openai_chat"], content_type="text/event-stream")
        answered = sdk.chat.completions.with_streaming_response.create(model="m", messages=[], stream=True)
        assert read(answered) == (stream, True), chunks
        assert gate.calls()[-1]["outcome"] == ("failed" if failed else "completed"), chunks


@every("streams")
def test_streams(case: Case, server: Upstream) -> None:
    content = case["body"]
    stream = "".join(line + "\n" for line in content).encode() if isinstance(content, list) else body(content)
    headers = underscored(case.get("headers", {"content-type": "text/event-stream; charset=utf-8"}))
    usage = next((signal["usage"] for signal in case["signals"] if "usage" in signal), None)
    for chunks in splits(stream, 8):
        # A separate gate, because failures hold a target back.
        gate = tidegate.Gate(defaults={"retry": {"attempts": 1}})
        server.handler = pieces(*chunks, **headers)
        data, whole = read(ask(gate, server, case))
        (call,) = gate.calls()
        assert data == stream, chunks
        assert whole == (case["end"] != "truncated"), chunks
        assert call["outcome"] == {"complete": "completed"}.get(case["end"], case["end"]), chunks
        (attempt,) = call["attempts"]
        assert (attempt["first_token_at"] is not None) == ("first_token" in case["signals"]), chunks
        if usage is None:
            assert call["input_tokens"] is None, chunks
        else:
            assert (call["input_tokens"], call["output_tokens"]) == (usage["input"], usage["output"]), chunks


def ask(gate: tidegate.Gate, server: Upstream, case: Case) -> Any:
    """Makes a request of a dialect with the wrapped client of its SDK."""
    dialect, stream = case["dialect"], case.get("stream", True)
    if dialect in {"other", "gemini"} or (dialect == "anthropic_messages" and not anthropic):
        # Gemini's path requests a stream; other dialects request it in the body.
        path = PATHS[dialect].replace(":generate", ":streamGenerate") if stream else PATHS[dialect]
        return http(gate).stream("POST", server.url + path, json={"model": "m", "stream": stream})
    if dialect == "anthropic_messages":
        claude: Any = gate.wrap(anthropic.Anthropic(base_url=server.url, api_key="k"))
        return claude.messages.with_streaming_response.create(model="m", max_tokens=1, messages=[], stream=stream)
    sdk: Any = gate.wrap(openai.OpenAI(base_url=f"{server.url}/v1", api_key="k"))
    resource, prompt = {
        "openai_chat": (sdk.chat.completions, {"messages": []}),
        "openai_completions": (sdk.completions, {"prompt": ""}),
        "openai_responses": (sdk.responses, {"input": ""}),
    }[dialect]
    return resource.with_streaming_response.create(model="m", stream=stream, **prompt)
