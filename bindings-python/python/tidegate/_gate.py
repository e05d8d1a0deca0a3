"""The gate: the object a process shares."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from tidegate import _native
from tidegate._event_loop import run_native
from tidegate._explain import Explanation
from tidegate._map import Map
from tidegate._target_slot import TargetSlot
from tidegate._tool import Tool
from tidegate._transport import FamilyName, TransportName, family_or_default, new_client
from tidegate._wrap import wrap

if TYPE_CHECKING:
    import os

    from tidegate._types import Lane
    from tidegate.config import ReplicaConfig
    from tidegate.snapshot import CallRecord, Snapshot

Client = TypeVar("Client")
Item = TypeVar("Item")
Value = TypeVar("Value")
Mode = Literal["enforce", "observe", "off"]


class Gate:
    """Lets through as many calls to each model as it can take right now: no fewer, no more.

    Share one per process; it is safe to use from any number of threads and event loops. In a forked child it
    starts anew from its configuration, with no call in flight.

    The keys are those of the configuration file. Durations are seconds, `timedelta`, or text with units
    (`"500ms"`, `"2m"`). With nothing configured every target has a queue, and finds by itself how many
    calls it takes at once. A target with an objective (`ttft`) keeps to that; a cap alone is what it says.

    Args:
        targets: the targets by name, first match first: a cap, or a dict of settings
            (`{"openai": {"cap": 64, "ttft": 2, "tpm": "2M"}}`; as a type `tidegate.config.TargetConfig`).
        tools: the tools by name: a cap, or a dict of settings (`{"db": 8, "search": {"cap": 4, "rps": 10}}`);
            with a `latency` the cap is a ceiling.
        tenants: the tenants by name, at every target (`{"acme": {"weight": 2, "floor": 0.25}}`).
        mode: `enforce` (the default), `observe` (measures, changes nothing) or `off`; the environment's
            `TIDEGATE` overrides it.
        **settings: any other top-level key of the file: `defaults`, `transport`, and `budgets`, the rates that several
            targets share (`{"account": {"rpm": 500}}`).

    Raises:
        ConfigError: naming every key that is unknown or impossible, and the nearest valid one; also if
            a proxy variable of the environment cannot be used.

    """

    def __init__(
        self,
        targets: Mapping[str, Any] | None = None,
        tools: Mapping[str, Any] | None = None,
        tenants: Mapping[str, Any] | None = None,
        mode: Mode | None = None,
        **settings: Any,
    ) -> None:
        """Check the configuration and open the gate."""
        given = {"mode": mode, "targets": targets, "tools": tools, "tenants": tenants, **settings}
        config = {key: value for key, value in given.items() if value is not None}
        self._native = _native.Gate(json.dumps(config, default=_to_json, allow_nan=False))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Gate:
        """Open a gate configured by a TOML file.

        Raises:
            ConfigError: naming the file, the line and every key that is wrong; also if it cannot be read,
                is no regular file, or is larger than 16 MiB, and if a proxy variable of the
                environment cannot be used.

        """
        gate = cls.__new__(cls)
        gate._native = _native.Gate.from_file(path)  # noqa: SLF001 - the other constructor
        return gate

    @property
    def mode(self) -> str:
        """Whether it acts (`enforce`), only looks (`observe`) or stands aside (`off`)."""
        return self._native.mode

    def wrap(self, client: Client, *, transport: TransportName = "auto") -> Client:
        """Return the client you have, going through this gate.

        Takes the clients of `openai` (2.x, 3.x) and `anthropic`, synchronous and asynchronous, Azure and the
        other flavours included, and LangChain's `ChatOpenAI` with both of its clients. What you configured stays:
        keys, base URL, headers, timeouts, and, of an `http_client` of your own, its event hooks, auth, headers,
        cookies, parameters and redirects. The original is left as it was. Retries become the gate's: `max_retries`
        is 0, except in mode `observe`, which keeps yours. In mode `off` the copy has your own transport, retries and
        timeouts, whatever they are: nothing of it goes through the gate.

        Args:
            client: the client; it must not be closed.
            transport: who makes the connections. `native`: the gate, with proxies and CA bundles from the environment.
                `keep`: the client's own transport, below the gate, with its proxies, mounts, TLS settings, connect and
                write timeouts, and whatever mocks patch in it; closing the copy leaves it open, closing the original
                closes it. `auto`, the default: `native`, unless the client has a transport, proxy, mounts or TLS
                settings of its own, ignores the environment's proxies or authorities
                (`trust_env=False`), or was created when the proxy variables had other values. TLS
                settings count if the `ssl.SSLContext` differs from the default. Every client keeps
                its transport if authorities come from `SSL_CERT_DIR` alone, or if `SSL_CERT_FILE` has
                changed since the gate was opened.

        Raises:
            TypeError: for any other object; and under `native` for a client with any of these of its own: the message
                says which.
            ValueError: for a client that is closed, and for another word than these three.
            ConfigError: if a proxy variable of the environment cannot be used.

        """
        return wrap(self._native, client, transport)

    def httpx_client(self, *, family: FamilyName | None = None, **kwargs: Any) -> Any:
        """Return an `httpx2.Client`, or `httpx.Client`, that goes through this gate.

        For everything that takes an http client. Refusals and deadlines come as responses (429, 503, 504) whose JSON
        says why; under an SDK that retries by itself (openai, anthropic and their kin) so does every other
        failure, marked `x-should-retry: false`, since an exception would be retried. In mode `observe` failures
        stay exceptions, and the SDK's retries its own; in mode `off` the client is one without the gate.

        Args:
            family: `httpx2` or `httpx`. Default: `httpx2` where it is installed, else `httpx`.
            **kwargs: what the client itself takes. `timeout` is 600 s unless given: its `read` bounds silence, its
                `pool` the wait for a slot. With `transport`, `mounts`, `proxy`, `verify` or `cert`, or with
                `trust_env=False` where the environment has proxies or `SSL_CERT_FILE`, and where `wrap` keeps the
                transports of all clients, connections are made by httpx's own transport, below the gate; closing the
                client closes it, as ever. `transport` may also be a word, as in `wrap`:
                `keep` does so without any of these, `native` refuses them. Then the thread itself waits for the answer
                and cannot be called away: a call to a pool whose replica hangs stays there until `timeout`'s `read`
                is over, and only then goes to another. Set it as low as silence may last, or use the asynchronous
                client, which moves as soon as the replica is known to be down.

        Raises:
            ImportError: where neither is installed.
            TypeError: under `transport="native"`, for arguments that belong to a transport of its own.
            ConfigError: if a proxy variable of the environment cannot be used.

        """
        return new_client(self._native, family_or_default(family), kwargs, asynchronous=False)

    def httpx_async_client(self, *, family: FamilyName | None = None, **kwargs: Any) -> Any:
        """Return an `httpx2.AsyncClient`, or `httpx.AsyncClient`: as `httpx_client`, on asyncio."""
        return new_client(self._native, family_or_default(family), kwargs, asynchronous=True)

    def tool(
        self,
        name: str,
        *,
        tenant: str | None = None,
        lane: Lane | None = None,
        deadline: float | None = None,
        yield_slot: bool = False,
    ) -> Tool:
        """Hold a slot of a tool: `with`, `async with`, or a decorator for functions and coroutine functions.

        One object may be entered any number of times, also at once. What is called inside inherits the
        context, and knows which tools are held: a cycle of tools is refused instead of waited for.

        A task that waits here while it holds a slot of a model, by a response that it has not read to its end or by
        `slot`, gets a `SlotHeldWarning`, once for each line: the slot idles meanwhile, and two such tasks may wait for
        each other. What counts is the asyncio task, or the thread, that opened the response: one that was handed on
        to another task, or a tool that is called in a thread pool, goes unnoticed.

        Args:
            name: a configured tool.
            tenant: as in `tidegate.context`.
            lane: as in `tidegate.context`.
            deadline: seconds from entering, for the wait and for every call inside.
            yield_slot: hand this task's model slots back while it waits for the tool and holds it. What the provider
                still sends is read ahead, up to 1 MiB a response, and the slot is back when the answer has ended; the
                response then reads as if nothing had happened. No answer is cut off: a longer one keeps its slot, and
                so does `slot`, and a synchronous client whose own transport was kept.

        Raises:
            UnknownNameError: on entering, for a tool that is not configured; the message names the nearest.
            Refused: on entering, when the queue is full, the wait is over, or waiting would never end.

        """
        return Tool(self._native, name, tenant, lane, deadline, yield_slot)

    def slot(
        self,
        target: str,
        *,
        tenant: str | None = None,
        lane: Lane | None = None,
        deadline: float | None = None,
    ) -> TargetSlot:
        """Hold a slot of a target, for a call that no HTTP client of ours makes: gRPC, boto3, websockets.

        ```python
        async with gate.slot("bedrock", tenant="acme") as slot:
            try:
                answer = await converse(...)
            except ClientError as error:
                slot.failed(error.response["ResponseMetadata"]["HTTPStatusCode"])
                raise
        ```

        `with`, `async with`, or a decorator; one object may be entered any number of times, also at once. The same
        queue, limits and books as for every other call to that target; a target that is there for slots alone has
        `url: "none"`. There is one attempt and no retry. What a wrapped client calls takes slots of its own: do not
        hold one around it.

        Where the target is a pool, `slot.replica` is the base URL of the replica that the slot is at, and the call is
        to go there. It is None for any other target, and in mode `off`.

        Left without an exception the call went well. `slot.failed(status, retry_after)` says that the upstream failed
        it, and cools the target down as any such answer would; it returns whether the same call may succeed later.
        Without it an exception says nothing of the target, and the call counts as cancelled.

        Args:
            target: a configured target.
            tenant: as in `tidegate.context`.
            lane: as in `tidegate.context`.
            deadline: seconds from entering, for the wait and for every call inside. It does not end what you do while
                you hold the slot.

        Raises:
            UnknownNameError: on entering, for a target that is not configured; the message names the nearest.
            Refused: on entering, when the queue is full, the wait is over, or the target is held back for too long.

        """
        return TargetSlot(self._native, target, tenant, lane, deadline)

    @overload
    def map(
        self,
        function: Callable[[Item], Awaitable[Value]],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        ordered: bool = False,
        ahead: int = 1_000,
        lane: Lane | None = "batch",
        tenant: str | None = None,
    ) -> Map[Item, Value]: ...

    @overload
    def map(
        self,
        function: Callable[[Item], Value],
        items: Iterable[Item] | AsyncIterable[Item],
        *,
        ordered: bool = False,
        ahead: int = 1_000,
        lane: Lane | None = "batch",
        tenant: str | None = None,
    ) -> Map[Item, Value]: ...

    def map(  # noqa: PLR0913 - keywords, each with a default
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any] | AsyncIterable[Any],
        *,
        ordered: bool = False,
        ahead: int = 1_000,
        lane: Lane | None = "batch",
        tenant: str | None = None,
    ) -> Map[Any, Any]:
        """Run the function over the items, as many at once as the gate has room for; few items, or without end.

        ```python
        async def summarise(row):
            return await client.chat.completions.create(model="gpt-4o", messages=row["messages"])

        async for result in gate.map(summarise, rows()):
            if result.error is None:
                save(result.item, result.value)
        ```

        How many run at once finds itself: as many as are needed for the gate always to have a call of theirs to let
        through (a few wait, at least 8, a quarter of the others), and no more. In modes `observe` and `off`, and where
        the function asks nothing of this gate, nothing holds them back, and 8 run at once. Memory is bounded: the
        source is asked for an item when one may begin, and never while `ahead` results wait to be read.

        Each item's error is its own, in `result.error`; `result.get()` raises it. What the source raises is raised
        here, once all that was begun has been handed out.

        Leaving the loop, closing the iterator or cancelling the task cancels what runs, waits for it, and closes a
        source that is a generator. `for` does the same in code without an event loop: items are taken and results
        handed out in the thread that iterates, and what is under way moves on while that waits for the next result,
        so long work between two results belongs elsewhere.

        For files in the batch format of OpenAI there is `tidegate run`.

        Args:
            function: called with each item; it makes its calls by a client that this gate wraps. A coroutine function;
                or a plain one, which then runs in threads, of which as many are made as are needed. A function in a
                thread cannot be interrupted: where the loop is left, what it waits for from the gate ends at once by
                `asyncio.CancelledError`, and all else goes on to its end, unread.
            items: an iterable, or an async iterable. An iterable is asked on the event loop: where its next item takes
                long to come, make it an async one.
            ordered: hand results out in the order of their items. Default: in the order in which they end.
            ahead: the most items that were taken and whose results were not yet handed out; so also the most that run
                at once. At least 1. One slow item, where results are ordered, holds back so many others.
            lane: as in `tidegate.context`. Default: `batch`. None: that of the context around.
            tenant: as in `tidegate.context`.

        Returns:
            Something to iterate once, by `async for` or `for`, each time a `Result`.

        Raises:
            TypeError: for what is no function, or cannot be iterated.
            ValueError: for an `ahead` below 1, or a lane that does not exist.

        """
        return Map(function, items, ordered, ahead, lane, tenant)

    def target_for(self, url: str, model: str | None = None) -> str | None:
        """Return the name of the configured target that takes requests to this URL, for this model.

        None: no configured target does, and such requests get one of their own, by origin, credential and model.

        Args:
            url: the request's whole URL.
            model: the model that the request names, if it does.

        Raises:
            RequestError: if `url` is not a URL, or its path has a `.` or `..` segment or a
                backslash. Pass `str(request.url)`.

        """
        return self._native.target_for(url, model)

    def set_replicas(self, target: str, replicas: Iterable[str | ReplicaConfig]) -> None:
        """Tell which are the replicas of a pool from now on.

        ```python
        gate.set_replicas("llama", ["http://10.0.0.1:8000", {"url": "http://10.0.0.2:8000", "weight": 2}])
        ```

        Who is new joins; who is known already goes on; who is not among them gets no more calls, and leaves with its
        last one. Of an empty list calls wait. It takes the place of the configured list, from any thread, and holds in
        processes that are forked later.

        Args:
            target: the name of a target with a `pool` that neither `dns` nor a `file` names.
            replicas: base URLs, or dicts with the keys of the configuration.

        Raises:
            UnknownNameError: for a target that is not configured.
            ConfigError: for one that is no such pool, and for what is no replica. They stay what they were.
            TypeError: for one URL, or one dict, where a list of them belongs.

        """
        if isinstance(replicas, (str, bytes, Mapping)):
            msg = "replicas: give a list, also where there is only one: [...]"
            raise TypeError(msg)
        self._native.set_replicas(target, json.dumps(list(replicas), default=_to_json, allow_nan=False))

    def snapshot(self) -> Snapshot:
        """Return the state of every target and tool now: limits, slots, queues, budgets, counts, quantiles in seconds.

        Of a target's budgets, those that nobody configured are there as soon as a response's headers spoke of them.
        Each key is told in `tidegate.snapshot`.
        """
        snapshot: Snapshot = json.loads(self._native.snapshot())
        return snapshot

    def prometheus(self) -> str:
        """Return every series in Prometheus' text format."""
        return self._native.prometheus()

    def calls(self) -> list[CallRecord]:
        """Return the last 1,024 calls that ended, oldest first, with the stamps of each attempt.

        What was expected of a call at the door (`estimated_input_tokens`, `estimated_output_tokens`) stands beside what
        the provider counted (`input_tokens`, `output_tokens`). Each key is told in `tidegate.snapshot.CallRecord`. What
        runs no model (files, lists of models) is not in it. No prompt and no header is kept, and no URL but those of
        replicas.
        """
        calls: list[CallRecord] = json.loads(self._native.calls())
        return calls

    @overload
    def explain(self, call: str | int) -> Explanation | None: ...

    @overload
    def explain(self, call: None = None, *, limit: int = 100) -> list[Explanation]: ...

    def explain(self, call: str | int | None = None, *, limit: int = 100) -> Explanation | list[Explanation] | None:
        """Say why a call waits now: which rule stands in its way, since when, and how long it expects to wait.

        ```python
        with tidegate.context(call="job-17"):
            ...
        print(gate.explain("job-17"))
        ```

        Args:
            call: what `tidegate.context(call=...)` named it, or its number. Of several calls of one name the one is
                meant that has waited the longest. None: every call under way, and every wait for a tool, those that
                wait first, the longest wait first.
            limit: the most of them.

        Returns:
            An `Explanation`, or None where no such call is under way; or a list.

        """
        if call is None:
            return [Explanation(**told) for told in json.loads(self._native.explain_all(limit))]
        told = self._native.explain(call)
        return None if told is None else Explanation(**json.loads(told))

    def drain(self, patience: float = 30.0) -> int:
        """Take no new calls and wait for those under way; return how many are left.

        Args:
            patience: the most seconds to wait. Then what still waits is refused; what is in flight goes on.

        """
        return self._native.drain_blocking(patience)

    async def adrain(self, patience: float = 30.0) -> int:
        """Drain as `drain` does, without blocking the loop. Cancelling it stops the waiting only."""
        left: int = await run_native(lambda port: self._native.drain(port, patience))
        return left

    def __repr__(self) -> str:
        """Show the mode; what is configured may name customers."""
        return f"<tidegate.Gate mode={self.mode}>"


def _to_json(value: object) -> Any:
    """Say in JSON what Python has a type of its own for."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a configuration holds text, numbers, lists and dicts, not {type(value).__name__}")
