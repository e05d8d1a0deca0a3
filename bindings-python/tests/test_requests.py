"""Tests of `Gate.requests_adapter`."""

from __future__ import annotations

import gc
import gzip
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from requests.adapters import HTTPAdapter
from requests.auth import HTTPDigestAuth
from urllib3.util import Retry, Timeout

import tidegate
from certificate_authority import Authority
from custom_transports import BODY, PATH, STREAM, in_flight
from provider_payloads import CHAT, CHAT_STREAM
from proxies import environment
from tidegate.testing import FakeTarget, stream
from upstream import WAIT, Exchange, Upstream, answer, event, events, hang_up, never, stall_after, truncate

QUICK = {"retry": {"base": "1ms", "max": "1ms"}}


def session(gate: tidegate.Gate, **settings: Any) -> requests.Session:
    """Returns a session whose requests go through the gate."""
    made = requests.Session()
    made.mount("http://", gate.requests_adapter(**settings))
    made.mount("https://", gate.requests_adapter(**settings))
    return made


@pytest.fixture
def gate() -> tidegate.Gate:
    """Returns a gate whose retries follow within milliseconds."""
    return tidegate.Gate(defaults=QUICK)


@pytest.fixture
def http(gate: tidegate.Gate) -> Iterator[requests.Session]:
    """Returns a session that sends through `gate`."""
    with session(gate) as made:
        yield made


def in_turn(*handlers: Any) -> Any:
    """Returns a handler that answers each request with the next handler."""
    left = list(handlers)

    async def handler(exchange: Exchange) -> None:
        await left.pop(0)(exchange)

    return handler


def test_a_call_is_retried_by_the_gate(upstream: Upstream, gate: tidegate.Gate, http: requests.Session) -> None:
    upstream.handler = in_turn(answer({"error": {}}, status=429, retry_after="0"), answer(CHAT, x_a="1"))
    response = http.post(upstream.url + PATH, json=BODY)
    assert (response.status_code, response.reason, response.json()) == (200, "Scripted", CHAT)
    assert response.headers["X-A"] == "1"
    assert response.url == upstream.url + PATH
    assert response.elapsed.total_seconds() > 0
    assert [exchange.json() for exchange in upstream.exchanges] == [BODY, BODY]
    (target,) = gate.snapshot()["targets"].values()
    assert (target["attempts"], target["in_flight"]) == (2, 0)
    (call,) = gate.calls()
    assert (call["outcome"], call["output_tokens"]) == ("completed", CHAT["usage"]["completion_tokens"])


def test_failing_calls_have_four_attempts(upstream: Upstream, http: requests.Session) -> None:
    upstream.handler = answer({"error": {}}, status=500)
    assert http.post(upstream.url + PATH, json=BODY).status_code == 500
    assert len(upstream.exchanges) == 4
    upstream.handler = hang_up
    with pytest.raises(requests.ConnectionError):
        http.post(upstream.url + PATH, json=BODY)


def test_refused_connections_are_connection_errors(gate: tidegate.Gate, http: requests.Session) -> None:
    with pytest.raises(requests.ConnectionError):
        http.post("http://127.0.0.1:1" + PATH, json=BODY)
    (target,) = gate.snapshot()["targets"].values()
    assert (target["attempts"], target["in_flight"]) == (4, 0)


def test_earlier_refusals_do_not_repeat_a_request_that_was_sent(upstream: Upstream, http: requests.Session) -> None:
    upstream.handler = hang_up
    try:
        requests.get("http://127.0.0.1:1")
    except requests.ConnectionError:
        # Python adds the refusal to the context of this failure.
        with pytest.raises(requests.ConnectionError):
            http.post(upstream.url + "/unknown", json={})
    assert len(upstream.exchanges) == 1


def test_streams_arrive_as_they_are_sent(upstream: Upstream, gate: tidegate.Gate, http: requests.Session) -> None:
    more = upstream.event()

    async def held(exchange: Exchange) -> None:
        await exchange.head(content_type="text/event-stream", transfer_encoding="chunked")
        await exchange.chunk(event(CHAT_STREAM[0]))
        await more.wait()
        for line in CHAT_STREAM[1:]:
            await exchange.chunk(event(line))
        await exchange.chunk(b"")

    upstream.handler = held
    with http.post(upstream.url + PATH, json=STREAM, stream=True) as response:
        lines = response.iter_lines()
        assert json.loads(next(lines).removeprefix(b"data: ")) == CHAT_STREAM[0]
        assert in_flight(gate) == 1
        upstream.call(more.set)
        assert b"data: [DONE]" in list(lines)
    assert in_flight(gate) == 0
    (call,) = gate.calls()
    assert call["outcome"] == "completed"


def test_closing_a_stream_releases_the_slot_and_the_connection(
    upstream: Upstream, gate: tidegate.Gate, http: requests.Session
) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0])
    response = http.post(upstream.url + PATH, json=STREAM, stream=True)
    assert next(response.iter_content(None)) == event(CHAT_STREAM[0])
    assert in_flight(gate) == 1
    response.close()
    assert in_flight(gate) == 0
    assert upstream.wait_for(1).closed.wait(WAIT)


@pytest.mark.parametrize("way", ["close", "drop"])
def test_leaving_a_stream_returns_its_connection_to_the_pool(way: str, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0])

    def leave_two(http: requests.Session) -> None:
        for _ in range(2):
            response = http.post(upstream.url + PATH, json=STREAM, stream=True)
            if way == "close":
                response.close()
            del response
            gc.collect()

    with session(gate, adapter=HTTPAdapter(pool_maxsize=1, pool_block=True)) as http:
        # A call blocks for ever if the connection is not returned.
        caller = threading.Thread(target=leave_two, args=(http,), daemon=True)
        caller.start()
        caller.join(WAIT)
        assert (caller.is_alive(), len(upstream.exchanges)) == (False, 2)


def test_dropped_responses_release_the_slot(upstream: Upstream, gate: tidegate.Gate, http: requests.Session) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0])
    response = http.post(upstream.url + PATH, json=STREAM, stream=True)
    del response
    gc.collect()
    assert in_flight(gate) == 0
    assert upstream.wait_for(1).closed.wait(WAIT)


def test_truncated_bodies_are_errors(upstream: Upstream, gate: tidegate.Gate, http: requests.Session) -> None:
    upstream.handler = truncate(b'{"a": ', 100)
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        http.post(upstream.url + PATH, json=BODY)
    # The provider ended the stream early, but the framing is complete.
    upstream.handler = events(*CHAT_STREAM[:1])
    with (
        pytest.raises(requests.exceptions.ChunkedEncodingError),
        http.post(upstream.url + PATH, json=STREAM, stream=True) as response,
    ):
        list(response.iter_lines())
    assert in_flight(gate) == 0


def test_rejected_calls_are_responses(upstream: Upstream) -> None:
    upstream.handler = stall_after(CHAT_STREAM[0])
    gate = tidegate.Gate(targets={"up": {"url": upstream.url, "cap": 1, "on_full": "refuse"}})
    with session(gate) as http, http.post(upstream.url + PATH, json=STREAM, stream=True):
        refused = http.post(upstream.url + PATH, json=BODY)
    assert (refused.status_code, refused.reason) == (429, "Too Many Requests")
    assert refused.json()["error"]["code"] == "no_slot"


@pytest.mark.parametrize(("mode", "attempts"), [("observe", 1), ("off", 0)])
def test_other_modes_do_not_retry(upstream: Upstream, mode: Any, attempts: int) -> None:
    upstream.handler = answer({"error": {}}, status=429, retry_after="0")
    gate = tidegate.Gate(mode=mode)
    with session(gate) as http:
        assert http.post(upstream.url + PATH, json=BODY).status_code == 429
    assert len(upstream.exchanges) == 1
    assert sum(target["attempts"] for target in gate.snapshot()["targets"].values()) == attempts


def test_read_timeouts(upstream: Upstream) -> None:
    gate = tidegate.Gate(defaults={"retry": {"attempts": 1}})
    with session(gate) as http:
        upstream.handler = never
        for timeout in (0.05, (5, 0.05), Timeout(connect=5, read=0.05), Timeout(total=0.05)):
            with pytest.raises(requests.ReadTimeout):
                http.post(upstream.url + PATH, json=BODY, timeout=timeout)
        upstream.handler = stall_after(CHAT_STREAM[0])
        response = http.post(upstream.url + PATH, json=STREAM, stream=True, timeout=0.05)
        with pytest.raises(requests.ConnectionError, match="timed out"):
            list(response.iter_lines())
    assert in_flight(gate) == 0


def test_deadlines_end_calls_that_have_no_timeout(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = never
    with session(gate) as http, tidegate.context(deadline=0.05):
        assert http.post(upstream.url + PATH, json=BODY).status_code == 504
    assert in_flight(gate) == 0


def test_encoded_bodies_are_decoded(upstream: Upstream, http: requests.Session) -> None:
    packed = gzip.compress(json.dumps(CHAT).encode(), mtime=0)

    async def handler(exchange: Exchange) -> None:
        await exchange.head(content_type="application/json", content_encoding="gzip", content_length=str(len(packed)))
        exchange.writer.write(packed)

    upstream.handler = handler
    assert http.get(upstream.url).json() == CHAT
    with http.get(upstream.url, stream=True) as response:
        assert b"".join(response.iter_content(7)) == json.dumps(CHAT).encode()
    with http.get(upstream.url, stream=True) as response:
        assert response.raw.read(5) + response.raw.read() == packed


def test_large_bodies_are_complete(upstream: Upstream, http: requests.Session) -> None:
    big = {"text": "x" * 3_000_000}
    upstream.handler = answer(big)
    assert http.post(upstream.url, json=big).json() == big
    assert upstream.exchanges[0].json() == big


def test_files_are_sent_again_and_generators_are_sent_once(
    upstream: Upstream, http: requests.Session, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    upstream.handler = answer({}, status=500)
    with path.open("rb") as file:
        assert http.put(upstream.url, data=file).status_code == 500
    assert [exchange.body for exchange in upstream.exchanges] == [b"0123456789"] * 4
    upstream.exchanges.clear()
    assert http.put(upstream.url, data=iter([b"01", b"23"])).status_code == 500
    assert [exchange.body for exchange in upstream.exchanges] == [b"0123"]


def test_redirects_cookies_and_authentication(upstream: Upstream, gate: tidegate.Gate, http: requests.Session) -> None:
    challenge = 'Digest realm="r", nonce="n", qop="auth", algorithm=MD5'
    upstream.handler = in_turn(
        answer({}, status=302, location="/to", Set_Cookie="a=1"),
        answer({}, status=401, WWW_Authenticate=challenge),
        answer({"ok": True}),
    )
    response = http.get(upstream.url, auth=HTTPDigestAuth("user", "password"))
    assert (response.json(), response.url) == ({"ok": True}, upstream.url + "/to")
    assert [earlier.status_code for earlier in response.history] == [302]
    assert [exchange.headers.get("cookie") for exchange in upstream.exchanges] == [None, "a=1", "a=1"]
    assert (http.cookies["a"], response.history[0].cookies["a"]) == ("1", "1")
    assert upstream.exchanges[2].headers["authorization"].startswith("Digest")
    assert sum(target["attempts"] for target in gate.snapshot()["targets"].values()) == 3


def test_settings_of_the_connection_are_those_of_requests(authority: Authority, http: requests.Session) -> None:
    with Upstream(authority.server()) as server:
        server.handler = answer({"ok": True})
        url = server.url.replace("http:", "https:")
        with pytest.raises(requests.exceptions.SSLError):
            http.get(url)
        assert http.get(url, verify=str(authority.file)).json() == {"ok": True}


def test_proxies_are_those_of_requests(upstream: Upstream, http: requests.Session) -> None:
    upstream.handler = answer({"proxied": True})
    assert http.get("http://example.invalid/v1", proxies={"http": upstream.url}).json() == {"proxied": True}
    assert upstream.exchanges[0].path == "http://example.invalid/v1"


def test_replicas_of_a_pool_are_reached(upstream: Upstream) -> None:
    upstream.handler = answer(CHAT)
    gate = tidegate.Gate(targets={"llama": {"pool": {"replicas": [upstream.url], "health": "none", "poll": "none"}}})
    with session(gate) as http:
        assert http.post("http://llama" + PATH, json=BODY).json() == CHAT
    assert upstream.exchanges[0].headers["host"] == upstream.url.removeprefix("http://")


def test_replica_that_no_proxy_names_is_reached_directly(upstream: Upstream) -> None:
    upstream.handler = answer(CHAT)
    with environment({"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": "127.0.0.1"}):
        pool = {"replicas": [upstream.url], "health": "none", "poll": "none"}
        gate = tidegate.Gate(targets={"llama": {"pool": pool}})
        with session(gate) as http:
            assert http.post("http://llama" + PATH, json=BODY).json() == CHAT


def test_malformed_requests_are_errors(http: requests.Session) -> None:
    with pytest.raises(requests.RequestException):
        http.post("http://127.0.0.1:1", data=iter([b"1"]), headers={"content-length": "x"})


def test_empty_responses_hold_no_slot(upstream: Upstream, gate: tidegate.Gate, http: requests.Session) -> None:
    async def answer_head(exchange: Exchange) -> None:
        await exchange.head(200, content_length="10")

    upstream.handler = answer_head
    unread = http.head(upstream.url, stream=True)
    assert (unread.status_code, in_flight(gate)) == (200, 0)


def test_cap_limits_threads(upstream: Upstream) -> None:
    gate = tidegate.Gate(defaults={"cap": 2})
    upstream.handler = answer(CHAT)
    with session(gate) as http, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: http.post(upstream.url + PATH, json=BODY).json(), range(32)))
    assert answers == [CHAT] * 32
    (target,) = gate.snapshot()["targets"].values()
    assert (target["peak_in_flight"], target["in_flight"]) == (2, 0)


def test_fake_targets_answer(gate: tidegate.Gate) -> None:
    with FakeTarget(otherwise=stream("the ", "tide")).installed() as target, session(gate) as http:
        url = "https://models.example.com" + PATH
        assert http.post(url, json=BODY).json()["choices"][0]["message"]["content"] == "the tide"
        assert b"data: [DONE]" in list(http.post(url, json=STREAM, stream=True).iter_lines())
    assert [attempt.stream for attempt in target.attempts] == [False, True]


def test_adapters_that_retry_are_rejected(gate: tidegate.Gate) -> None:
    with pytest.raises(ValueError, match="max_retries"):
        gate.requests_adapter(adapter=HTTPAdapter(max_retries=2))
    with pytest.raises(ValueError, match="max_retries"):
        gate.requests_adapter(adapter=HTTPAdapter(max_retries=Retry(status=2)))
    with pytest.raises(TypeError, match="HTTPAdapter"):
        gate.requests_adapter(adapter=object())
