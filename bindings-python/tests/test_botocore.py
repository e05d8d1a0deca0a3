"""Tests of `Gate.attach_botocore`."""

from __future__ import annotations

import io
import json
import struct
import zlib
from typing import Any

import botocore.session
import pytest
from botocore import exceptions
from botocore.client import BaseClient
from botocore.config import Config

import tidegate
from certificate_authority import Authority
from custom_transports import in_flight
from tidegate.testing import FakeTarget, status
from upstream import WAIT, Exchange, Upstream, answer, hang_up, never, truncate

MESSAGES = [{"role": "user", "content": [{"text": "hello"}]}]
CONVERSE = {
    "output": {"message": {"role": "assistant", "content": [{"text": "hi"}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
    "metrics": {"latencyMs": 1},
}
QUICK = {"retry": {"base": "1ms", "max": "1ms"}}
DELTA = ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "hi"}})
STOP = ("messageStop", {"stopReason": "end_turn"})


@pytest.fixture
def gate() -> tidegate.Gate:
    """Returns a gate whose retries follow within milliseconds."""
    return tidegate.Gate(defaults=QUICK)


def new_client(url: str, **settings: Any) -> Any:
    """Returns a client of Bedrock that sends to `url`."""
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    return botocore.session.Session().create_client("bedrock-runtime", endpoint_url=url, **keys, **settings)


def converse(client: Any) -> Any:
    return client.converse(modelId="vendor.small-v1:0", messages=MESSAGES)


def converse_stream(client: Any) -> Any:
    return client.converse_stream(modelId="vendor.small-v1:0", messages=MESSAGES)["stream"]


def frame(kind: str, data: Any) -> bytes:
    """Returns one encoded event of an AWS event stream."""
    headers = b""
    for name, value in ((":message-type", "event"), (":event-type", kind), (":content-type", "application/json")):
        headers += struct.pack(
            f">B{len(name)}sBH{len(value)}s", len(name), name.encode(), 7, len(value), value.encode()
        )
    payload = json.dumps(data).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", zlib.crc32(message))


def event_stream(*frames: tuple[str, Any], then: Any = None) -> Any:
    """Returns a handler that sends the events. It then runs `then`, or ends the body."""

    async def handler(exchange: Exchange) -> None:
        await exchange.head(content_type="application/vnd.amazon.eventstream", transfer_encoding="chunked")
        for kind, data in frames:
            await exchange.chunk(frame(kind, data))
        if then is None:
            await exchange.chunk(b"")
        else:
            await then(exchange)

    return handler


def test_only_the_gate_retries_and_each_attempt_has_the_same_signed_bytes(
    upstream: Upstream, gate: tidegate.Gate
) -> None:
    upstream.handler = answer({"message": "broken"}, status=500)
    with pytest.raises(exceptions.ClientError, match="broken"):
        converse(gate.attach_botocore(new_client(upstream.url)))
    assert len(upstream.exchanges) == 4
    first = upstream.exchanges[0]
    assert first.path == "/model/vendor.small-v1%3A0/converse"
    assert first.headers["authorization"].startswith("AWS4-HMAC-SHA256")
    assert all(
        (sent.headers, sent.body, sent.path) == (first.headers, first.body, first.path) for sent in upstream.exchanges
    )
    (call,) = gate.calls()
    assert (call["model"], len(call["attempts"])) == ("vendor.small-v1:0", 4)


def test_a_429_is_retried_once(upstream: Upstream, gate: tidegate.Gate) -> None:
    handlers = [answer({"message": "slow down"}, status=429, retry_after="0"), answer(CONVERSE)]

    async def in_turn(exchange: Exchange) -> None:
        await handlers.pop(0)(exchange)

    upstream.handler = in_turn
    answered = converse(gate.attach_botocore(new_client(upstream.url)))
    assert answered["output"] == CONVERSE["output"]
    assert answered["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert len(upstream.exchanges) == 2
    assert in_flight(gate) == 0


def test_attempts_of_the_configuration_are_a_maximum(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer({"message": "broken"}, status=500)
    client = gate.attach_botocore(new_client(upstream.url, config=Config(retries={"total_max_attempts": 2})))
    with pytest.raises(exceptions.ClientError):
        converse(client)
    assert len(upstream.exchanges) == 2


@pytest.mark.parametrize("retries", [{"mode": "legacy"}, {"mode": "standard"}, {"mode": "adaptive"}])
def test_every_retry_mode_is_switched_off(retries: Any, upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer({"message": "broken"}, status=500)
    with pytest.raises(exceptions.ClientError):
        converse(gate.attach_botocore(new_client(upstream.url, config=Config(retries=retries))))
    assert len(upstream.exchanges) == 4


def test_event_streams_arrive_as_they_are_sent(upstream: Upstream, gate: tidegate.Gate) -> None:
    more = upstream.event()

    async def rest(exchange: Exchange) -> None:
        await more.wait()
        await exchange.chunk(frame(*STOP))
        await exchange.chunk(b"")

    upstream.handler = event_stream(DELTA, then=rest)
    events = iter(converse_stream(gate.attach_botocore(new_client(upstream.url))))
    assert next(events) == dict([DELTA])
    assert in_flight(gate) == 1
    upstream.call(more.set)
    assert list(events) == [dict([STOP])]
    assert in_flight(gate) == 0


def test_closing_an_event_stream_releases_the_slot_and_the_connection(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = event_stream(DELTA, then=never)
    stream = converse_stream(gate.attach_botocore(new_client(upstream.url)))
    next(iter(stream))
    assert in_flight(gate) == 1
    stream.close()
    assert in_flight(gate) == 0
    assert upstream.wait_for(1).closed.wait(WAIT)


def test_truncated_bodies_are_errors(upstream: Upstream, gate: tidegate.Gate) -> None:
    client = gate.attach_botocore(new_client(upstream.url))
    upstream.handler = truncate(b'{"output": ', 100)
    with pytest.raises(exceptions.ConnectionClosedError):
        converse(client)
    upstream.handler = event_stream(DELTA, then=hang_up)
    # botocore does not translate the errors of event streams.
    with pytest.raises(Exception, match="IncompleteRead|truncated|ended"):
        list(converse_stream(client))
    assert in_flight(gate) == 0


def test_failed_connections_are_the_errors_of_botocore(upstream: Upstream, gate: tidegate.Gate) -> None:
    with pytest.raises(exceptions.EndpointConnectionError):
        converse(gate.attach_botocore(new_client("http://127.0.0.1:1")))
    upstream.handler = never
    client = gate.attach_botocore(
        new_client(upstream.url, config=Config(read_timeout=0.05, retries={"total_max_attempts": 1}))
    )
    with pytest.raises(exceptions.ReadTimeoutError):
        converse(client)
    assert in_flight(gate) == 0


def test_rejected_calls_are_client_errors(upstream: Upstream) -> None:
    upstream.handler = event_stream(DELTA, then=never)
    gate = tidegate.Gate(defaults={"cap": 1, "on_full": "refuse"})
    client = gate.attach_botocore(new_client(upstream.url))
    held = converse_stream(client)
    for method in (converse, converse_stream):
        with pytest.raises(exceptions.ClientError, match="slot") as refused:
            method(client)
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
        assert refused.value.response["Error"]["Code"] == "no_slot"
    held.close()
    assert len(upstream.exchanges) == 1


def test_deadlines_end_calls(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = never
    client = gate.attach_botocore(new_client(upstream.url))
    with tidegate.context(deadline=0.05), pytest.raises(exceptions.ClientError, match="deadline") as late:
        converse(client)
    assert late.value.response["ResponseMetadata"]["HTTPStatusCode"] == 504


@pytest.mark.parametrize(("mode", "attempts"), [("observe", 3), ("off", 0)])
def test_other_modes_leave_the_retries_of_botocore(upstream: Upstream, mode: Any, attempts: int) -> None:
    upstream.handler = answer({"message": "broken"}, status=500)
    gate = tidegate.Gate(mode=mode)
    with pytest.raises(exceptions.ClientError):
        converse(gate.attach_botocore(new_client(upstream.url, config=Config(retries={"mode": "standard"}))))
    assert len(upstream.exchanges) == 3
    assert sum(target["attempts"] for target in gate.snapshot()["targets"].values()) == attempts


def test_settings_of_the_connection_are_those_of_the_client(authority: Authority, gate: tidegate.Gate) -> None:
    with Upstream(authority.server()) as server:
        server.handler = answer(CONVERSE)
        url = server.url.replace("http:", "https:")
        with pytest.raises(exceptions.SSLError):
            converse(gate.attach_botocore(new_client(url)))
        assert converse(gate.attach_botocore(new_client(url, verify=str(authority.file))))["stopReason"] == "end_turn"


def test_a_client_can_be_attached_to_another_gate(upstream: Upstream, gate: tidegate.Gate) -> None:
    upstream.handler = answer(CONVERSE)
    second = tidegate.Gate()
    client = new_client(upstream.url)
    assert gate.attach_botocore(client) is client
    converse(second.attach_botocore(client))
    assert (len(gate.calls()), len(second.calls())) == (0, 1)


def test_fake_targets_answer(gate: tidegate.Gate) -> None:
    client = gate.attach_botocore(new_client("https://bedrock-runtime.us-east-1.amazonaws.com"))
    with FakeTarget(otherwise=status(418)).installed() as target, pytest.raises(exceptions.ClientError, match="418"):
        converse(client)
    assert len(target.attempts) == 1


def test_wrap_names_the_method_for_clients_of_botocore(gate: tidegate.Gate) -> None:
    with pytest.raises(TypeError, match=r"gate\.attach_botocore"):
        gate.wrap(new_client("http://127.0.0.1:1"))


def test_other_objects_are_rejected(gate: tidegate.Gate) -> None:
    with pytest.raises(TypeError, match=r"boto3\.client"):
        gate.attach_botocore(object())
    asynchronous = type("AioBaseClient", (BaseClient,), {"__module__": "aiobotocore.client"})
    with pytest.raises(TypeError, match=r"gate\.slot"):
        gate.attach_botocore(asynchronous.__new__(asynchronous))


def test_file_is_uploaded_with_a_checksum_behind_it(gate: tidegate.Gate, authority: Authority) -> None:
    """The body that botocore sends over TLS reads all of the file if it is asked for nothing."""

    async def accept(exchange: Exchange) -> None:
        await exchange.head(content_length="0")

    with Upstream(tls=authority.server()) as upstream:
        upstream.handler = accept
        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
        url = upstream.url.replace("http:", "https:")
        session = botocore.session.Session()
        client = session.create_client("s3", endpoint_url=url, verify=str(authority.file), **keys)
        for sender in (client, gate.attach_botocore(client)):
            sender.put_object(Bucket="b", Key="k", Body=io.BytesIO(b"hello" * 1_000))
        bare, gated = (exchange.body for exchange in upstream.exchanges)
    assert b"hello" * 1_000 in bare
    assert gated == bare
