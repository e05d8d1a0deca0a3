"""The gate: the object through which a process makes its calls.

Methods import what only they need, so that `import tidegate` is quick.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from tidegate import _native
from tidegate._config_json import to_json
from tidegate._warnings import warn_of_green_threads

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterable, Awaitable, Callable, Iterable

    from tidegate._explain import Explanation
    from tidegate._litellm import LiteLLMRoute
    from tidegate._map import Map
    from tidegate._target_slot import TargetSlot
    from tidegate._tool import Tool
    from tidegate._transport import FamilyName, TransportName
    from tidegate._types import Lane
    from tidegate.config import ReplicaConfig, ShareConfig
    from tidegate.snapshot import CallRecord, Snapshot

Client = TypeVar("Client")
Item = TypeVar("Item")
Value = TypeVar("Value")
Mode = Literal["enforce", "observe", "off"]


class Gate:
    """Sends as many calls to each model as it can serve at the moment, and queues the others.

    Share one gate per process. A gate may be used from any number of threads and event loops. In a
    forked child, the gate starts again from its configuration with no calls in flight.

    The keys are those of the configuration file. Durations are seconds, `timedelta`, or text with a
    unit (`"500ms"`, `"2m"`). A target without settings has a queue and an adaptive limit. A target
    with an objective (`ttft`) adapts its limit to the objective. A target with only a `cap` has
    that fixed limit.

    Args:
        targets: Targets by name, in order of precedence. Each value is a cap or a dict of settings
            (`{"openai": {"cap": 64, "ttft": 2, "tpm": "2M"}}`). For the type of the dict, see
            `tidegate.config.TargetConfig`.
        tools: Tools by name. Each value is a cap or a dict of settings (`{"db": 8, "search":
            {"cap": 4, "rps": 10}}`). For a tool with a `latency`, the cap is the maximum of an
            adaptive limit.
        tenants: Tenants by name, at every target (`{"acme": {"weight": 2, "floor": 0.25}}`).
        mode: `enforce` (default), `observe` (measures and changes nothing) or `off`. The
            environment variable `TIDEGATE` overrides it.
        share: `local`: all processes of the same user on this machine share the caps of targets and
            tools that have the same names. The URL of a Redis or Valkey server
            (`redis://host:6379`): all processes that use it do. `auto` (default): the children that
            this process forks do. `off`: none do. A dict of settings may also set the group of
            processes (`{"store": "local", "name": "web"}`); see `tidegate.config.ShareConfig`.
        **settings: Any other top-level key of the configuration file: `defaults`, `transport`, and
            `budgets`, which are rates that several targets share (`{"account": {"rpm": 500}}`).

    Raises:
        ConfigError: If a key is unknown or impossible. The message names every such key and the
            nearest valid one. Also raised if a proxy variable of the environment cannot be used.

    Warns:
        RuntimeWarning: If gevent or eventlet has replaced the sockets of the process. A synchronous
            call that waits in the gate would block all green threads.

    Example:
        ```python
        gate = tidegate.Gate(
            targets={"openai": {"url": "https://api.openai.com", "cap": 64}},
            tools={"db": 8},
        )
        ```

    """

    def __init__(
        self,
        targets: Mapping[str, Any] | None = None,
        tools: Mapping[str, Any] | None = None,
        tenants: Mapping[str, Any] | None = None,
        mode: Mode | None = None,
        share: str | ShareConfig | None = None,
        **settings: Any,
    ) -> None:
        """Checks the configuration and opens the gate. For the arguments, see the class."""
        given = {"mode": mode, "targets": targets, "tools": tools, "tenants": tenants, "share": share, **settings}
        config = {key: value for key, value in given.items() if value is not None}
        self._native = _native.Gate(to_json(config))
        warn_of_green_threads()

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Gate:
        """Opens a gate that is configured by a TOML file.

        Args:
            path: Path of the file: a regular file of at most 16 MiB.

        Returns:
            The open gate.

        Raises:
            ConfigError: If the file cannot be read or is too large, or if a key is wrong. The
                message names the file, the line and every wrong key. Also raised if a proxy
                variable of the environment cannot be used.

        """
        gate = cls.__new__(cls)
        gate._native = _native.Gate.from_file(path)  # noqa: SLF001 - the other constructor
        warn_of_green_threads()
        return gate

    @property
    def mode(self) -> str:
        """The mode of the gate.

        `enforce` limits calls, `observe` sends every call at once and only measures, and `off`
        bypasses the gate.
        """
        return self._native.mode

    def wrap(self, client: Client, *, transport: TransportName = "auto") -> Client:
        """Returns a copy of an SDK client whose requests go through this gate.

        Supported are the synchronous and asynchronous clients of `openai` (2.x, 3.x), `anthropic`,
        `groq` and `together`, their Azure and other variants, LangChain's `ChatOpenAI`, and CrewAI's
        `LLM` of openai and anthropic. The copy keeps your keys, base URL, headers and timeouts. If
        you passed an `http_client`, the copy also keeps its event hooks, auth, headers, cookies,
        parameters and redirects. The original client is not changed.

        The gate retries instead of the SDK, so `max_retries` of the copy is 0. If your client has
        another `max_retries` than the SDK's default, the gate makes at most one attempt more than
        that number for each call; otherwise the target's `retry.attempts` applies. Leave
        `max_retries` of the copy at 0: the SDK would repeat calls that cannot connect. Another 0,
        such as `copy.with_options(max_retries=0)`, therefore changes nothing: for calls without
        retries, use a second copy, `gate.wrap(client.with_options(max_retries=0))`. Middleware of the
        SDK runs once for each call, because the attempts are made below it. In mode `observe` the
        SDK keeps its retries. In mode `off` the copy has your transport, retries and timeouts, and
        bypasses the gate unless a target is a pool: only the gate can resolve the address of a pool.

        Bedrock clients that sign their requests with AWS credentials, such as `AnthropicBedrock`, do
        so before the requests wait in the queue, and AWS rejects signatures that are older than five
        minutes. For their target, set `wait = "4m"` and `deadline = "5m"` or less: `wait` alone counts
        neither failed attempts nor the time in which the target is closed.

        With `transport="auto"`, the client keeps its transport in any of these cases:

        - It has a transport, proxy, mounts or TLS settings of its own. TLS settings are its own if
          the `ssl.SSLContext` differs from the default one.
        - It ignores proxies or authorities of the environment (`trust_env=False`).
        - The proxy variables had other values when the client was created.
        - The environment names authorities by `SSL_CERT_DIR` alone, or `SSL_CERT_FILE` has changed
          since the gate was opened.
        - A tool has replaced `handle_request` or `handle_async_request` of httpx's transport class,
          as OpenTelemetry's instrumentation of httpx does.

        Args:
            client: The client, which must not be closed.
            transport: The transport that opens connections. `native`: the gate, with proxies and CA
                bundles from the environment. `keep`: the client's own transport below the gate,
                with its proxies, mounts, TLS settings, connect and write timeouts, and mocks;
                closing the copy leaves that transport open, and closing the original closes it.
                `auto` (default): `native`, unless one of the cases above applies.

        Returns:
            The copy, of the same type as `client`.

        Raises:
            TypeError: If the object is not a supported client, or if `transport="native"` would
                lose a setting of the client. The message names the setting.
            ValueError: If the client is closed, or if `transport` is not one of the three values.
            ConfigError: If a proxy variable of the environment cannot be used.

        Example:
            ```python
            from openai import AsyncOpenAI

            client = gate.wrap(AsyncOpenAI())
            ```

        """
        from tidegate._wrap import wrap

        return wrap(self._native, client, transport)

    def httpx_client(self, *, family: FamilyName | None = None, **kwargs: Any) -> Any:
        """Returns an `httpx2.Client` or `httpx.Client` whose requests go through this gate.

        Pass the client to any library that accepts an httpx client. Rejected calls and passed
        deadlines become responses (413, 429, 503 or 504) with a JSON body that explains them. Below
        an SDK that retries by itself (openai, anthropic), every other failure also becomes a
        response, with the header `x-should-retry: false`, because the SDK would retry an exception.
        Only an exception of `transport` after which the gate does not retry, such as a
        `ValueError`, is raised as it is. In mode `observe`, failures remain exceptions and the SDK
        keeps its retries. In mode `off`, the client does not use the gate.

        Connections are opened by httpx's own transport, below the gate, if `transport`, `mounts`,
        `proxy`, `verify` or `cert` is given, if `trust_env=False` is given while the environment
        has proxies or `SSL_CERT_FILE`, or in a case in which `wrap` keeps the transport of every
        client (for example, `SSL_CERT_FILE` has changed since the gate was opened, or a tool has
        replaced a method of httpx's transport class). Closing the client closes that transport. The
        calling thread then waits in the transport and cannot be interrupted: a call to a replica
        that hangs is moved to another replica only after the `read` timeout. Set that timeout to
        the longest silence that you accept, or use the asynchronous client, which moves the call as
        soon as the replica is known to be down.

        Args:
            family: The package of the client: `httpx2` or `httpx`. Default: `httpx2` if it is
                installed, otherwise `httpx`.
            **kwargs: Arguments of the client class. Default `timeout`: 600 s; its `read` part
                limits the silence between chunks, and its `pool` part limits the wait for a slot.
                `transport` may also be `auto`, `keep` or `native`, as in `wrap`. The gate's own
                transport does not use `limits`, the `connect` and `write` parts of `timeout`, and
                the request extension `trace`: the target's `cap`, the `connect` setting of the
                configuration and, for streamed request bodies that the server stops reading, the
                `read` part apply instead. It rejects requests with the extension `target`, or
                with an `sni_hostname` other than the host, and its responses have only
                `http_version` in `extensions`. `transport="keep"` supports them all.

        Returns:
            The client. Its type is `Any`, because it depends on the installed package.

        Raises:
            ImportError: If neither package is installed.
            TypeError: If `transport="native"` and an argument belongs to another transport.
            ConfigError: If a proxy variable of the environment cannot be used.

        Example:
            ```python
            with gate.httpx_client() as http:
                response = http.post("https://api.openai.com/v1/responses", json={"model": "gpt-4o", "input": "Hello."})
            ```

        """
        from tidegate._transport import family_or_default, new_client

        return new_client(self._native, family_or_default(family), kwargs, asynchronous=False)

    def httpx_async_client(self, *, family: FamilyName | None = None, **kwargs: Any) -> Any:
        """Returns an `httpx2.AsyncClient` or `httpx.AsyncClient` that sends through this gate.

        The client works under asyncio and trio, as do all asynchronous functions of the gate.

        Args:
            family: As in `httpx_client`.
            **kwargs: As in `httpx_client`.

        Returns:
            The client. Its type is `Any`, because it depends on the installed package.

        Raises:
            ImportError: If neither package is installed.
            TypeError: If `transport="native"` and an argument belongs to another transport.
            ConfigError: If a proxy variable of the environment cannot be used.

        Example:
            ```python
            async with gate.httpx_async_client() as http:
                response = await http.post(
                    "https://api.openai.com/v1/responses", json={"model": "gpt-4o", "input": "Hello."}
                )
            ```

        """
        from tidegate._transport import family_or_default, new_client

        return new_client(self._native, family_or_default(family), kwargs, asynchronous=True)

    def httpx_transport(self, *, family: FamilyName | None = None) -> Any:
        """Returns a synchronous httpx transport that sends requests through this gate.

        Use it for libraries that accept a transport, or that create their httpx client themselves
        with arguments of yours. If a library accepts a client, `httpx_client` has better timeouts:
        httpx's default of 5 s also limits the wait for a slot and the time to the first token.

        The gate opens the connections, with the proxies and CA bundles of the environment, so that
        tools which replace methods of httpx's transport classes do not see the requests. Rejections
        and failures are as with `httpx_client`. In mode `off`, the transport is httpx's own, unless
        a target is a pool. Closing the transport closes no connection of the gate.

        Args:
            family: The package: `httpx2` or `httpx`. Default: `httpx2` if it is installed,
                otherwise `httpx`.

        Returns:
            The transport. Its type is `Any`, because it depends on the installed package.

        Raises:
            ImportError: If neither package is installed.
            ConfigError: If a proxy variable of the environment cannot be used.

        Example:
            ```python
            import httpx

            http = httpx.Client(transport=gate.httpx_transport(family="httpx"), timeout=600)
            ```

        """
        from tidegate._transport import family_or_default, new_transport

        return new_transport(self._native, family_or_default(family), asynchronous=False)

    def httpx_async_transport(self, *, family: FamilyName | None = None) -> Any:
        """Returns an asynchronous httpx transport that sends requests through this gate.

        Args:
            family: As in `httpx_transport`.

        Returns:
            The transport. Its type is `Any`, because it depends on the installed package.

        Raises:
            ImportError: If neither package is installed.
            ConfigError: If a proxy variable of the environment cannot be used.

        Example:
            ```python
            import httpx

            http = httpx.AsyncClient(transport=gate.httpx_async_transport(family="httpx"), timeout=600)
            ```

        """
        from tidegate._transport import family_or_default, new_transport

        return new_transport(self._native, family_or_default(family), asynchronous=True)

    def litellm(self) -> LiteLLMRoute:
        """Sends the HTTP requests that LiteLLM makes in this process through this gate.

        Covers every provider that LiteLLM calls by HTTP, synchronously and asynchronously. Clients
        that LiteLLM has created before are included, as are `litellm.client_session`,
        `litellm.aclient_session`, and handlers that you pass with `client=`. An SDK client that you
        pass with `client=` is not covered: wrap it with `wrap`. `docs/guide/clients.md` lists the
        few providers that LiteLLM does not call by its HTTP clients.

        The gate opens the connections. If you have set LiteLLM's `ssl_verify` or another setting
        of TLS, addresses or proxies, or given it a transport, LiteLLM opens them, below the gate.
        LiteLLM's timeouts apply to each attempt, as in `httpx_client`.

        The gate makes all attempts of a call. LiteLLM repeats calls above the gate if you set
        `num_retries`, and a `Router` does so by default: create it with `num_retries=0`. In mode
        `observe`, LiteLLM keeps its retries, one of which is not measured: the second attempt after
        a broken connection. In mode `off`, nothing changes.

        A second call returns the same object. If a second gate calls it, LiteLLM's requests go
        through that gate until its object is closed.

        Returns:
            An object whose `close` restores LiteLLM's own clients. It is also a context manager.

        Raises:
            ImportError: If LiteLLM is not installed.
            RuntimeError: If the installed LiteLLM lacks what this method replaces. The message
                names the versions that work.
            ConfigError: If a proxy variable of the environment cannot be used.

        Example:
            ```python no-run
            import litellm

            gate.litellm()
            answer = litellm.completion(model="mistral/mistral-small", messages=[{"role": "user", "content": "Hello."}])
            ```

        """
        from tidegate._litellm import route_litellm

        return route_litellm(self._native)

    def requests_adapter(self, *, adapter: Any = None) -> Any:
        """Returns a transport adapter of `requests` that sends through this gate.

        Mount it for `https://`, and for `http://` if you have targets without TLS. Redirects,
        cookies, authentication and hooks work as before. Rejected calls and passed deadlines become
        responses (413, 429, 503 or 504) with a JSON body that explains them; other failures are the
        exceptions of requests. Connections are opened by an `HTTPAdapter` of requests, below the
        gate, so that `proxies`, `verify`, `cert`, `timeout` and the environment apply. A `timeout`
        does not limit the wait in the queue. The calling thread waits in that adapter and cannot be
        interrupted: a call to a replica that hangs is moved to another replica only after the read
        timeout. `fallback`, `ask_usage` and hedging do not apply to these calls.

        Args:
            adapter: The `requests.adapters.HTTPAdapter` that opens the connections, for example
                with a TLS context of yours. Default: a new one with a pool of 256 connections.
                Closing the returned adapter closes it.

        Returns:
            The adapter. In mode `off`, it is `adapter` itself, unless a target is a pool. Its type
            is `Any`, because requests is optional.

        Raises:
            ImportError: If requests, or urllib3 2.2 or later, is not installed.
            TypeError: If `adapter` is not an `HTTPAdapter`.
            ValueError: In mode `enforce`, if `adapter` has `max_retries`, which would multiply the
                attempts.

        Example:
            ```python
            import requests

            session = requests.Session()
            session.mount("https://", gate.requests_adapter())
            ```

        """
        from tidegate._adapters.requests_adapter import new_adapter

        return new_adapter(self._native, adapter)

    def aiohttp_middleware(self) -> Any:
        """Returns a client middleware of `aiohttp` that sends requests through this gate.

        Redirects, cookies, `raise_for_status` and tracing work as before. Rejected calls and passed
        deadlines become responses (413, 429, 503 or 504) with a JSON body that explains them; other
        failures are the exceptions of aiohttp. The session's connector opens the connections, below
        the gate, so that `connector`, `proxy`, `ssl` and `timeout` apply. The slot is held until
        the body has been read to its end, or the response is released, closed or dropped.
        Websockets bypass the gate. `fallback`, `ask_usage` and hedging do not apply to these calls.

        Middlewares that come before this one run once for each call, and those after it once for
        each attempt. If one before it retries, the attempts multiply. `middlewares=` of one request
        replaces those of the session, so that the request bypasses the gate. Two defaults of aiohttp
        suit few programs: `ClientTimeout(total=300)` includes the wait in the queue, and a connector
        opens at most 100 connections. `aiohttp_session` has other defaults.

        Returns:
            The middleware. Its type is `Any`, because aiohttp is optional.

        Raises:
            ImportError: If aiohttp 3.13 or later is not installed.

        Example:
            ```python
            import aiohttp

            async with aiohttp.ClientSession(middlewares=[gate.aiohttp_middleware()]) as http:
                async with http.get("https://api.openai.com/v1/models") as response:
                    print(response.status)
            ```

        """
        from tidegate._adapters.aiohttp_middleware import GateMiddleware

        return GateMiddleware(self._native)

    def aiohttp_session(self, **kwargs: Any) -> Any:
        """Returns an `aiohttp.ClientSession` whose requests go through this gate.

        The session has the middleware of `aiohttp_middleware`.

        Args:
            **kwargs: Arguments of `aiohttp.ClientSession`. Default `timeout`: 30 s to connect, and
                600 s of silence, without a limit of the total time. Default `connector`: one without
                a limit of connections. `middlewares` run outside the gate, once for each call.

        Returns:
            The session. Its type is `Any`, because aiohttp is optional.

        Raises:
            ImportError: If aiohttp 3.13 or later is not installed.
            RuntimeError: If no event loop is running.

        Example:
            ```python
            async with gate.aiohttp_session() as http:
                async with http.get("https://api.openai.com/v1/models") as response:
                    print(response.status)
            ```

        """
        from tidegate._adapters.aiohttp_middleware import new_session

        return new_session(self._native, kwargs)

    def attach_botocore(self, client: Client) -> Client:
        """Makes a client of boto3 or botocore send through this gate, and returns the client.

        The client is changed in place: a handler of its event `before-send` sends each request. The
        client's own HTTP session opens the connections, below the gate, so that proxies, TLS
        settings and timeouts apply. Each attempt sends the same signed bytes. Event streams, such as
        those of `converse_stream`, hold their slot until they end or are closed.

        In mode `enforce`, the gate retries instead of botocore. If the client is configured with a
        number of attempts (`Config(retries={"total_max_attempts": 3})`, `AWS_MAX_ATTEMPTS`), the
        gate makes at most that number for each call; otherwise the target's `retry.attempts`
        applies. Rejected calls and passed deadlines are a `ClientError` with status 413, 429, 503
        or 504.

        Requests are signed before they wait in the queue, and AWS rejects signatures that are older
        than 5 minutes. Set `wait` of the target to less, and its `deadline` to 5 minutes or less:
        `wait` alone counts neither failed attempts nor the time in which the target is closed. The
        calling thread waits in botocore's session and cannot be interrupted. `fallback`, `ask_usage`
        and hedging do not apply.

        Args:
            client: The client, for example `boto3.client("bedrock-runtime")`. Clients that are
                created later from the same boto3 session are not attached.

        Returns:
            The same client. In mode `off` it is not changed, unless a target is a pool.

        Raises:
            ImportError: If botocore, or urllib3 2.2 or later, is not installed.
            TypeError: If the object is not a client of botocore.

        Example:
            ```python no-run
            import boto3

            client = gate.attach_botocore(boto3.client("bedrock-runtime", region_name="us-east-1"))
            ```

        """
        from tidegate._adapters.botocore_client import attach_client

        attached: Client = attach_client(self._native, client)
        return attached

    def tool(
        self,
        name: str,
        *,
        tenant: str | None = None,
        lane: Lane | None = None,
        deadline: float | None = None,
        yield_slot: bool = False,
    ) -> Tool:
        """Returns a context manager and decorator that holds a slot of a tool.

        Use it with `with`, with `async with`, or as a decorator of functions and coroutine
        functions. One object may be entered any number of times, also concurrently. Calls inside
        inherit the context and the list of tools whose slots are held. With this list, the gate
        rejects a wait for a tool that could never end. Cancelling the wait removes it from the
        queue.

        A `SlotHeldWarning` is emitted, once for each line, if the task waits for the tool while it
        holds a slot of a model: an unread response, or a slot from `slot`. That slot is idle
        meanwhile, and two such tasks can wait for each other. The response counts for the task (of
        asyncio or trio) or thread that opened it. The warning therefore misses responses that are
        handed to another task, and tools that are called in a thread pool.

        Args:
            name: Name of a configured tool.
            tenant: As in `tidegate.context`.
            lane: As in `tidegate.context`.
            deadline: Seconds after entry by which the wait and every call inside must have ended.
            yield_slot: Whether to release this task's model slots while it waits for the tool and
                holds it. Default: False. The rest of each response is read ahead, up to 1 MiB, and
                the slot is released when the response has ended. The response can then be read as
                usual. Longer responses keep their slots. So do slots from `slot`, and synchronous
                clients that keep their own transport.

        Returns:
            The context manager.

        Raises:
            UnknownNameError: On entry, if the tool is not configured. The message names the nearest
                tool.
            Refused: On entry, if the gate rejects the wait, for example because the queue is full,
                the maximum wait has passed, or the wait could never end.

        Example:
            ```python
            async with gate.tool("db", tenant="acme"):
                rows = await query()

            @gate.tool("db")
            async def count() -> int:
                return len(await query())
            ```

        """
        from tidegate._tool import Tool

        return Tool(self._native, name, (tenant, lane, deadline), yield_slot)

    def slot(
        self,
        target: str,
        *,
        tenant: str | None = None,
        lane: Lane | None = None,
        deadline: float | None = None,
    ) -> TargetSlot:
        """Returns a context manager and decorator that holds a slot of a target.

        Use it for a call that no HTTP client makes through the gate: gRPC, websockets. The call has
        the same queue, limits and records as every other call of that target. A target that serves
        only such calls has `url: "none"`. The gate makes one attempt and does not retry. A wrapped
        client acquires its own slots, so do not hold a slot around it.

        `slot.replica` is the base URL of the replica to call if the target is a pool, and None for
        other targets and in mode `off`. Leaving the block without an exception counts the call as
        completed. `slot.failed(status, retry_after)` reports that the upstream failed the call,
        cools the target down accordingly, and returns whether the same call may succeed later.
        After any other exception the call counts as cancelled. Cancelling the wait removes it from
        the queue.

        Args:
            target: Name of a configured target.
            tenant: As in `tidegate.context`.
            lane: As in `tidegate.context`.
            deadline: Seconds after entry by which the wait and every call inside must have ended.
                The deadline does not interrupt your own code in the block.

        Returns:
            The context manager. `as` names the `Slot`.

        Raises:
            UnknownNameError: On entry, if the target is not configured. The message names the
                nearest target.
            Refused: On entry, if the gate rejects the call, for example because the queue is full,
                the maximum wait has passed, or the target is in a cool-down for longer than the
                call may wait.

        Example:
            ```python
            async with gate.slot("bedrock", tenant="acme") as slot:
                try:
                    answer = await converse()
                except ClientError as error:
                    slot.failed(error.response["ResponseMetadata"]["HTTPStatusCode"])
                    raise
            ```

        """
        from tidegate._target_slot import TargetSlot

        return TargetSlot(self._native, target, (tenant, lane, deadline))

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
        """Runs a function over items, with as many items at once as the gate has capacity for.

        The number of running items adapts, so that a call is ready for every slot that becomes
        free: the goal is one queued call for every four running items that are not queued, and at
        least 8 queued calls. In modes `observe` and `off`, and if the function makes no calls
        through this gate, 8 items run at once. Memory is bounded: an item is taken from the source
        only when it can start, and never while `ahead` results are unread.

        The error of an item is in `result.error`, and `result.get()` raises it. An error of the
        source is raised after all started items have been returned.

        Leaving the loop, closing the iterator or cancelling the task cancels the running items,
        waits for them, and closes the source if it is a generator. Under trio, items run in system
        tasks, outside the nurseries and cancel scopes of the caller. `for` does the same in code
        without an event loop. Items then make progress only while the iteration waits for a result,
        so move long work between two results to another thread.

        For files in OpenAI's batch format, use the command `tidegate run`.

        Args:
            function: Called with each item; makes its calls with a client that this gate wraps. A
                coroutine function, or a plain function, which runs in threads. A thread cannot be
                interrupted: when the loop is left, its waits for the gate end with
                `asyncio.CancelledError`, and its other work continues to its end.
            items: An iterable or async iterable. An iterable runs on the event loop, so use an
                async iterable if an item takes long to produce.
            ordered: Whether results are returned in the order of the items. Default: False, in
                order of completion.
            ahead: Maximum number of items that were taken and whose results were not yet returned,
                at least 1. Default: 1,000. The number of running items has the same limit. If
                results are ordered, one slow item delays at most this many others.
            lane: As in `tidegate.context`. Default: `batch`. None: inherited.
            tenant: As in `tidegate.context`.

        Returns:
            An object to iterate once, with `async for` or `for`. It yields a `Result` for each
            item.

        Raises:
            TypeError: If `function` is not callable, or if `items` cannot be iterated.
            ValueError: If `ahead` is less than 1, or if the lane does not exist.

        Example:
            ```python
            async def summarise(row):
                return await client.chat.completions.create(model="gpt-4o", messages=row["messages"])

            async for result in gate.map(summarise, rows()):
                if result.error is None:
                    save(result.item, result.value)
            ```

        """
        from tidegate._map import Map

        return Map(function, items, ordered, ahead, lane, tenant)

    def target_for(self, url: str, model: str | None = None) -> str | None:
        """Returns the name of the configured target that serves requests to a URL.

        A request that matches no configured target gets a target of its own, for its combination of
        origin, credential and model.

        Args:
            url: The whole URL of the request.
            model: The model that the request names, or None for a request without a model.

        Returns:
            The name, or None if no configured target matches.

        Raises:
            RequestError: If `url` is not a URL, or if its path has a `.` or `..` segment or a
                backslash. Pass `str(request.url)`.

        Example:
            ```python
            assert gate.target_for("https://api.openai.com/v1/responses", "gpt-4o") == "openai"
            ```

        """
        return self._native.target_for(url, model)

    def set_replicas(self, target: str, replicas: Iterable[str | ReplicaConfig]) -> None:
        """Replaces the replicas of a pool.

        New replicas are added, and known replicas keep their state. Replicas that are not in the
        list get no more calls and are removed when their last call ends. With an empty list, calls
        wait. The list replaces the configured one, may be set from any thread, and also applies to
        processes that are forked later.

        Args:
            target: Name of a target whose `pool` has neither `dns` nor `file`.
            replicas: Base URLs, or dicts with the keys of the configuration.

        Raises:
            UnknownNameError: If the target is not configured.
            ConfigError: If the target is not such a pool, or if a replica is invalid. The replicas
                do not change.
            TypeError: If `replicas` is a single URL or dict instead of a list.

        Example:
            ```python
            gate.set_replicas("llama", ["http://10.0.0.1:8000", {"url": "http://10.0.0.2:8000", "weight": 2}])
            ```

        """
        if isinstance(replicas, (str, bytes, Mapping)):
            msg = "replicas: pass a list, even for a single replica: [...]"
            raise TypeError(msg)
        self._native.set_replicas(target, to_json(list(replicas)))

    def snapshot(self) -> Snapshot:
        """Returns the current state of every target and tool.

        The state has limits, slots, queues, budgets, counts and quantiles. All times are in
        seconds. A budget that is not configured appears as soon as the headers of a response name
        it.

        Returns:
            A dict. `tidegate.snapshot` describes each key.

        Example:
            ```python
            for name, target in gate.snapshot()["targets"].items():
                print(name, target["in_flight"], target["limit"], target["queue_depth"])
            ```

        """
        snapshot: Snapshot = json.loads(self._native.snapshot())
        return snapshot

    def prometheus(self) -> str:
        """Returns every metric in Prometheus' text format.

        Returns:
            The text, with a line feed at the end of each line.

        Example:
            ```python
            from pathlib import Path

            Path("metrics.txt").write_text(gate.prometheus())
            ```

        """
        return self._native.prometheus()

    def calls(self) -> list[CallRecord]:
        """Returns the last 1,024 calls that ended, oldest first, with the times of each attempt.

        Calls that run no model (files, lists of models) are not included. Records contain no
        prompts and no headers, and no URLs except those of replicas.

        Returns:
            A list of dicts. `tidegate.snapshot.CallRecord` describes each key.

        Example:
            ```python
            for call in gate.calls():
                print(call["id"], call["outcome"], call["duration"])
            ```

        """
        calls: list[CallRecord] = json.loads(self._native.calls())
        return calls

    @overload
    def explain(self, call: str | int) -> Explanation | None: ...

    @overload
    def explain(self, call: None = None, *, limit: int = 100) -> list[Explanation]: ...

    def explain(self, call: str | int | None = None, *, limit: int = 100) -> Explanation | list[Explanation] | None:
        """Explains why calls wait: the blocking rule, its duration so far, and the expected wait.

        Args:
            call: Label from `tidegate.context(call=...)`, or the number of the call. If several
                calls have the label, the one that has waited longest is explained. Default: all
                active calls and all waits for a tool. Those that wait come first, in order of
                decreasing wait.
            limit: Maximum length of the list. Default: 100.

        Returns:
            For one call, an `Explanation`, or None if no such call is active. Otherwise a list.

        Example:
            ```python
            with tidegate.context(call="job-17"):
                answer = await client.responses.create(model="gpt-4o", input="Say hello.")
            print(gate.explain("job-17"))
            ```

        """
        from tidegate._explain import Explanation

        if call is None:
            return [Explanation(**explanation) for explanation in json.loads(self._native.explain_all(limit))]
        explanation = self._native.explain(call)
        return None if explanation is None else Explanation(**json.loads(explanation))

    def drain(self, patience: float = 30.0) -> int:
        """Stops admitting new calls, and waits until no call is active.

        Args:
            patience: Maximum wait in seconds, 0 or more. Afterwards queued calls are rejected, and
                calls in flight continue. Default: 30.

        Returns:
            The number of calls that are still active: 0 if the wait ended before `patience`.

        Raises:
            ValueError: If `patience` is negative or not finite.

        Example:
            ```python
            left = gate.drain(patience=10)
            ```

        """
        return self._native.drain_blocking(patience)

    async def adrain(self, patience: float = 30.0) -> int:
        """Drains the gate as `drain` does, without blocking the event loop.

        Cancelling the coroutine stops only the wait; the gate continues to drain.

        Args:
            patience: Maximum wait in seconds, 0 or more. Afterwards queued calls are rejected, and
                calls in flight continue. Default: 30.

        Returns:
            The number of calls that are still active: 0 if the wait ended before `patience`.

        Raises:
            ValueError: If `patience` is negative or not finite.

        Example:
            ```python
            left = await gate.adrain(patience=10)
            ```

        """
        from tidegate._event_loop import run_native

        left: int = await run_native(lambda port: self._native.drain(port, patience))
        return left

    def __repr__(self) -> str:
        """Returns the class and the mode, but no names, because they may be confidential."""
        return f"<tidegate.Gate mode={self.mode}>"
