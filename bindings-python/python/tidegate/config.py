"""The types of the configuration, for type checkers and editors. At run time each is a dict.

```python
from tidegate.config import TargetConfig

openai: TargetConfig = {"cap": 64, "ttft": 2, "tpm": "2M", "lanes": {"batch": {"queue": 500}}}
gate = tidegate.Gate(targets={"openai": openai})
```

`tidegate.Gate` checks the values.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, TypeAlias, TypedDict

__all__ = [
    "Count",
    "Duration",
    "LaneConfig",
    "LanesConfig",
    "Limit",
    "LimitConfig",
    "Off",
    "PercentileConfig",
    "PoolConfig",
    "RateConfig",
    "ReplicaConfig",
    "RetryConfig",
    "StepConfig",
    "TargetConfig",
    "TargetSettings",
    "TenantConfig",
    "ToolConfig",
    "TransportConfig",
]

Duration = float | str | timedelta
"""Seconds, a `timedelta`, or text with units: `"500ms"`, `"2m"`, `"1h30m"`."""

Count = int | str
"""A number of tokens or requests, which may be in thousands or millions: `"450k"`, `"1.5M"`."""

Off = Literal[False, "none"] | None
"""Switches a setting off."""

Limit: TypeAlias = 'Literal["adaptive", "fixed"] | LimitConfig'
"""How many slots of a cap are in force.

Without it the limit is adaptive, unless a `cap` is set and no objective is (`ttft` of a target or a lane, `latency` of
a tool): then it is fixed at the cap.
"""


class LanesConfig(TypedDict, total=False):
    """The settings of each lane of a target."""

    interactive: LaneConfig
    standard: LaneConfig
    batch: LaneConfig


# Generated from the declarations in the Rust crate, which a test compares with this file.


class RetryConfig(TypedDict, total=False):
    """How failed attempts of a call are repeated."""

    attempts: int
    """The maximum number of attempts of a call, including the first.

    Range: 1 to 100. Default: 4.
    """

    base: Duration
    """The upper bound of the first backoff, at most `max`.

    It doubles with each attempt (full jitter). Range: 1ms to 30d. Default: 500ms.
    """

    max: Duration
    """The upper bound of every backoff.

    A provider's Retry-After is a lower bound and may exceed it. Range: 1ms to 30d. Default: 30s.
    """

    ratio: float
    """The retry budget: retries earned per call of the last 10 s. Range: 0 to 10. Default: 0.2."""

    reserve: int
    """The retry budget: retries that need not be earned. Range: 0 to 10000. Default: 10."""


class StepConfig(TypedDict):
    """A decrease by a number of slots."""

    step: int
    """The number of slots. Range: 1 to 65536."""


class PercentileConfig(TypedDict, total=False):
    """A percentile of the time to first token over a time window, as the detector of late calls."""

    quantile: float
    """The quantile that is compared with the objective. Range: 0.01 to 0.999. Default: 0.99."""

    window: Duration
    """The time over which the quantile is computed. Range: 1s to 1h. Default: 30s."""

    tick: Duration
    """The time between two evaluations, at most `window`. Range: 100ms to 10m. Default: 5s."""

    band: float
    """The dead band on either side of the objective, as a share of it.

    Range: 0 to 0.9. Default: 0.2.
    """

    hold: int
    """The number of ticks after a decrease before the next one. Range: 0 to 1000. Default: 3."""


class LimitConfig(TypedDict, total=False):
    """How an adaptive limit changes. Its upper bound is the `cap` of the target, tool or pool."""

    start: int
    """The limit at the start, from `min` to `cap`.

    The limit doubles from there until the first decrease. With a percentile detector it increases
    by 1 per tick instead. Range: 1 to 65536. Default: 8, or the nearest that `min` and `cap` allow.
    """

    min: int
    """The lower bound of the limit, at most `cap`. Range: 1 to 65536. Default: 1."""

    awaiting: int | Off
    """The maximum number of calls that await their first token at the same time.

    A value above the cap has no effect. Not for tools. Range: 1 to 65536. Default: limited
    adaptively if decrease is "served", otherwise not limited.
    """

    decrease: Literal["served"] | float | StepConfig
    """How far the limit is decreased when calls miss the objective: to the concurrency that the
    upstream was observed to serve (`"served"`), to a share of the limit (0.1 to 0.99), or by a
    number of slots (`{ step = 4 }`, 1 to 65536).

    Other causes have fixed decreases: 429 responses that are not about a rate decrease the limit to
    the number of calls that were accepted; 503, 529, timeouts and a missed `tpot` decrease it by a
    tenth. Default: to the concurrency that is served.
    """

    detector: Literal["exceedance", "percentile"] | PercentileConfig
    """How late first tokens are detected: by a sequential test of the share of calls above the
    objective, per kind of call (`"exceedance"`), or by a percentile over a time window
    (`"percentile"`, or a table with its settings).

    Default: exceedance.
    """


class TenantConfig(TypedDict, total=False):
    """A tenant at a target, or at all of them."""

    weight: float
    """The tenant's weight in fair queueing. Range: 0.001 to 1000000. Default: 1."""

    cap: int | Off
    """The maximum number of slots of the tenant.

    A value above the target's cap has no effect. Range: 1 to 65536. Default: the target's.
    """

    queue: int | Off
    """The maximum number of the tenant's calls in the queue.

    Range: 0 to 1000000. Default: the target's.
    """

    floor: float
    """The share of the slots in force that is reserved for the tenant.

    Unused reserved slots may be borrowed. Not for `default_tenant`. Range: 0 to 1. Default: 0.
    """

    tpm: Count | Off
    """The tokens per minute that the tenant may use.

    Use above the rate is a debt that delays the tenant's later calls. Range: 1 to 1000000000000.
    Default: none.
    """

    shed: bool
    """Whether the tenant's queued calls may be rejected to make room for more urgent ones in a full
    queue.

    Default: true.
    """


class LaneConfig(TypedDict, total=False):
    """The calls of one lane (priority class) at a target."""

    floor: float
    """The share of the slots in force that is reserved for the lane.

    Unused reserved slots may be borrowed. Range: 0 to 1. Default: 0.
    """

    queue: int | Off
    """The maximum number of the lane's calls in the queue, of all tenants together.

    Range: 0 to 1000000. Default: none.
    """

    wait: Duration | Off
    """The wait budget of the lane's calls, at most `deadline`.

    Range: 1ms to 30d. Default: the target's.
    """

    ttft: Duration | Off
    """The lane's objective for the time to first token, at most `deadline`.

    Range: 1ms to 30d. Default: the target's.
    """


class RateConfig(TypedDict, total=False):
    """The rates that a provider allows, of a target or of a budget that several targets share.

    A rate that is not set is not limited until the headers of a response report one.
    """

    rpm: Count | Off
    """Requests per minute. Range: 1 to 1000000000. Default: none."""

    rpd: Count | Off
    """Requests per day. Range: 1 to 1000000000. Default: none."""

    tpm: Count | Off
    """Tokens per minute, input and output together. Range: 1 to 1000000000000. Default: none."""

    tpd: Count | Off
    """Tokens per day, input and output together. Range: 1 to 1000000000000. Default: none."""

    itpm: Count | Off
    """Input tokens per minute, for providers that count input and output separately.

    Range: 1 to 1000000000000. Default: none.
    """

    otpm: Count | Off
    """Output tokens per minute, for providers that count input and output separately.

    Range: 1 to 1000000000000. Default: none.
    """

    burst: Duration
    """How much of a rate may be used at once, as the time over which the rate allows it.

    6 s is a tenth of a minute's rate. Range: 100ms to 1m. Default: 6s.
    """

    counting: Literal["auto", "sum", "larger", "actual", "input"]
    """How the provider counts a call against its token rates.

    `"auto"`: By the provider's API and what its rate headers show. `"sum"`: The input and the
    maximum output, at arrival. `"larger"`: The larger of the input and the maximum output, at
    arrival. `"actual"`: The input at arrival, the output as it is produced. `"input"`: The input
    only. Default: auto.
    """

    headers: Literal["follow", "lower", "ignore"]
    """What the provider's rate headers may change.

    `"follow"`: They raise and lower the rates. `"lower"`: They only lower the rates: a configured
    rate is an upper bound. `"ignore"`: Nothing. Default: follow.
    """


class TargetSettings(RateConfig, total=False):
    """How a target behaves. All of it may also be set in `defaults`."""

    limit: Limit
    """How many slots of the cap are in force.

    Default: adaptive; fixed with a `cap` and no `ttft`.
    """

    cap: int
    """The maximum number of slots.

    It is the limit itself if the limit is fixed, and its upper bound if the limit is adaptive. For
    pools it limits the replicas together. Range: 1 to 65536. Default: 256; for pools 65536.
    """

    queue: int
    """The maximum number of calls in the queue, per tenant.

    Range: 0 to 1000000. Default: 10,000.
    """

    backlog: int
    """The maximum number of calls in the queue, of all tenants together.

    Range: 0 to 1000000. Default: 100,000.
    """

    wait: Duration | Off
    """The wait budget: the maximum time in the queue while the target is open, over all attempts of
    a call.

    At most `deadline`. Range: 1ms to 30d. Default: none but the deadline.
    """

    on_full: Literal["wait", "refuse"]
    """What happens to a call that finds no free slot.

    `"wait"`: The call is queued. It fails with 504 when its wait budget runs out. `"refuse"`: The
    call is rejected at once with 429. Default: wait.
    """

    deadline: Duration
    """The maximum time of a call, including its wait, retries and stream.

    Range: 1ms to 30d. Default: 10m, or the client's read timeout if that is longer.
    """

    first_token: Duration | Off
    """The maximum time from the start of an attempt to its first token, for streams.

    At most `deadline`. Range: 1ms to 30d. Default: the client's read timeout.
    """

    idle: Duration | Off
    """The maximum time between two chunks of a response.

    Range: 1ms to 30d. Default: the client's read timeout.
    """

    stall: Duration | Off
    """The maximum time that the reader of a response may leave a chunk unread.

    Afterwards its slot is released. Range: 1ms to 30d. Default: 5m.
    """

    ttft: Duration | Off
    """The objective for the time to first token, including the wait.

    An adaptive limit keeps to it. At most `deadline`. Range: 1ms to 30d. Default: none.
    """

    tpot: Duration | Off
    """The objective for the time per output token, on average over a call.

    Needs an adaptive limit. At most `deadline`. Range: 1ms to 30d. Default: none.
    """

    aging: Duration
    """The wait after which a call moves up one lane.

    A call that moved up goes before the calls of that lane, for at most an eighth of the capacity.
    Range: 1ms to 30d. Default: 30s.
    """

    max_prompt: Count | Off
    """The longest prompt, in estimated tokens.

    Longer ones are rejected at once with 413. Range: 1 to 1000000000000. Default: none.
    """

    predict: Literal["deadline", "objective", "off"]
    """When a call is rejected at once because of its predicted wait.

    `"deadline"`: If its slot is predicted after its deadline or the end of its wait budget.
    `"objective"`: Also if its slot is predicted after the TTFT objective of its lane. `"off"`:
    Never. Default: deadline.
    """

    cost: Literal["auto", "tokens", "kv", "calls"]
    """The cost that fair queueing charges for a call.

    `"auto"`: `kv` for pools and for targets with `kv_tokens`, otherwise `tokens`. `"tokens"`: Input
    and output tokens. `"kv"`: Tokens held in the engine's KV memory, times the seconds they are
    held. `"calls"`: 1 per call. Default: auto.
    """

    short_bias: Duration | Off
    """The delay of a call of 1000 tokens in its own tenant's queue, in favour of shorter calls.

    Proportional to the tokens of the call. Range: 1ms to 30d. Default: none.
    """

    reclaim: bool
    """Whether a call on a borrowed reserved slot is cancelled and queued again when the owner needs
    the slot, if the call has not produced a token.

    Default: false.
    """

    kv_tokens: Count | Off
    """The number of tokens that the KV memory of the engine holds, for pools of each replica.

    A prefix that several calls share counts once at replicas that report prefix caching, and in
    full for each call at other targets. Without it the memory is not limited, except at replicas
    that report their size. Range: 1 to 1000000000000. Default: not known.
    """

    kv_headroom: float
    """The share of the KV memory that is kept free. Range: 0 to 0.9. Default: 0.1."""

    tokenizer: Literal["learned", "bpe", "vllm"]
    """How the tokens of a prompt are counted before the call is sent.

    `"learned"`: By the prompt's length, with a ratio learned from the provider's counts. `"bpe"`:
    Exactly, with the encoding of OpenAI's models. Needs a build with the feature `bpe`. `"vllm"`:
    By a request to `/tokenize` of the vLLM server. Default: learned.
    """

    ask_usage: bool
    """Whether to request the token usage of streams if the caller does not, and to remove it from
    the response.

    Default: false.
    """

    budget: str | Off
    """The name of a shared budget in `budgets`, in place of the target's own rates.

    Default: none.
    """

    fallback: str | Off
    """The target that receives the calls that this one rejects.

    It needs one base URL (or all of this target's), and a `model` (or all of this target's models
    in its `models`). In `defaults` it does not apply to the target that it names. Default: none.
    """

    retry: RetryConfig
    """How failed attempts are repeated.

    Default: attempts 4, base 500ms, max 30s, ratio 0.2 retries per call, reserve 10 retries.
    """

    lanes: LanesConfig
    """The lanes: `interactive`, `standard` and `batch`."""

    default_tenant: TenantConfig
    """The settings of tenants that are not named.

    Named tenants do not inherit them. Default: weight 1, cap the target's, queue the target's,
    floor 0 of the slots, tpm none, shed true.
    """

    tenants: dict[str, TenantConfig]
    """Named tenants."""


class ReplicaConfig(TypedDict, total=False):
    """A replica of a pool."""

    url: str
    """The base URL of the replica, with or without `/v1`."""

    models: str | list[str]
    """The models that the replica serves, by their full names.

    Default: requested from the replica (`/v1/models`).
    """

    weight: float
    """The replica's share of the calls, relative to the weights of the others.

    Range: 0.01 to 100. Default: 1.
    """

    kv_tokens: Count | Off
    """The number of tokens that the replica's KV memory holds.

    Range: 1 to 1000000000000. Default: the target's, otherwise requested from the replica.
    """


class PoolConfig(TypedDict, total=False):
    """A pool: replicas that serve the same models.

    Clients call it at `http://NAME`, where NAME is the target's. One of `replicas`, `dns` and
    `file` names the replicas; without any of them the program sets them (`set_replicas`). A pool
    has at most 128 replicas: of more that a file or DNS names, the first 128 are used.
    """

    replicas: list[str | ReplicaConfig]
    """The replicas: base URLs, with or without `/v1`, or tables. 1 to 128. Default: none."""

    dns: str
    """A URL with scheme `http`, host and port, such as `"http://vllm.internal:8000"`.

    Each address of the host is a replica. Default: none.
    """

    dns_every: Duration
    """The time between two lookups of `dns`, while calls are made.

    A failed lookup changes nothing. Range: 1s to 1h. Default: 5s.
    """

    file: str
    """A file that names the replicas: TOML or JSON with `replicas`, or one URL per line.

    A regular file of at most 1 MiB. A file that cannot be read changes nothing. Default: none.
    """

    file_every: Duration
    """The time between two reads of `file`, while calls are made.

    Range: 100ms to 1h. Default: 1s.
    """

    key_env: str
    """The environment variable with the key for requests to `/v1/models` of the replicas.

    Calls carry their own key. Default: none.
    """

    cap: int
    """The maximum number of slots of each replica.

    It is the limit itself if the limit is fixed, and its upper bound if the limit is adaptive.
    Range: 1 to 65536. Default: 256.
    """

    health: str | Off
    """The path that is requested to check the health of a replica.

    Any response but a 5xx is healthy. Switched off, health is known from calls only. Default: not
    requested.
    """

    poll: Duration | Off
    """The time between two requests for a replica's metrics (`/metrics`), while calls are sent to
    it.

    Range: 50ms to 1m. Default: not requested.
    """

    down_after: Duration
    """The time without a healthy response after which a replica that does not respond is down.

    Calls that have not produced a token there are then sent to other replicas. A shorter silence
    only keeps new calls away. Range: 100ms to 5m. Default: 2s.
    """

    cut_after: Duration
    """The silence after which a stream of a replica that is down is ended as truncated.

    Range: 100ms to 1h. Default: 10s.
    """

    slow_start: Duration | Off
    """The time over which a replica that joins or recovers is raised to its full share of the
    calls.

    Range: 1ms to 1h. Default: full share at once.
    """

    session: str | Off
    """The request header that names a session.

    The calls of a session are sent to the same replica, within bounds. Default: x-session-id.
    """

    affinity: bool
    """Whether calls whose prompts start alike are sent to the same replica, within bounds.

    Default: true.
    """

    hedge: Duration | Off
    """The time without a first token after which a call is also sent to another replica.

    The first response is used, and the other attempt is cancelled. Counts against the retry budget.
    Only for streams, in mode `enforce`, and never for clients that keep their own transport. Range:
    50ms to 5m. Default: none.
    """


class TargetConfig(TargetSettings, total=False):
    """Which requests are a target's, and how calls reach it that fall back to it."""

    url: str | list[str]
    """The base URLs of the requests, with all paths below them.

    `"none"`: no request is the target's, and its slots are acquired by name (`acquire_slot`).
    Default: of well-known providers and pools, their own; otherwise every URL.
    """

    models: str | list[str]
    """The models of the requests. `*` matches any text. Default: every model."""

    model: str
    """The model to request for calls that fall back to this target.

    Default: the only name in `models`.
    """

    key_env: str
    """The environment variable with the credential for calls that fall back to this target; never
    the credential itself.

    Without it, the caller's credential is sent if protocol, host and port are the same, and
    otherwise only if `forward_headers` names its header. Default: none.
    """

    forward_headers: str | list[str]
    """The headers of the caller that this target receives, beside the standard ones, from calls
    that fall back to it on another server or with `key_env`.

    Default: none.
    """

    pool: PoolConfig | list[str | ReplicaConfig]
    """The replicas, if the target is not one endpoint: a table, or a list of replicas.

    Default: none.
    """


class ToolConfig(TypedDict, total=False):
    """A tool: a named resource that is not a model, with a cap of its own."""

    limit: Limit
    """How many slots of the cap are in force. Default: fixed; adaptive with a `latency`."""

    cap: int
    """The maximum number of slots. Range: 1 to 65536."""

    latency: Duration | Off
    """The objective for the time of a call.

    An adaptive limit keeps to it. Range: 1ms to 30d. Default: none.
    """

    queue: int
    """The maximum number of calls in the queue, per tenant.

    Range: 0 to 1000000. Default: 10,000.
    """

    wait: Duration | Off
    """The maximum time in the queue.

    Not with `on_full = "refuse"`. Range: 1ms to 30d. Default: none.
    """

    on_full: Literal["wait", "refuse"]
    """What happens to a call that finds no free slot.

    `"wait"`: The call is queued. It fails with 504 when its wait budget runs out. `"refuse"`: The
    call is rejected at once with 429. Default: wait.
    """

    rps: float | Off
    """Calls per second. Range: 0.001 to 1000000. Default: none."""

    rpm: Count | Off
    """Calls per minute, in place of `rps`. Range: 1 to 1000000000. Default: none."""


class TransportConfig(TypedDict, total=False):
    """The settings of connections, of all targets."""

    connect: Duration
    """The maximum time to open a connection. Range: 1ms to 30d. Default: 10s."""

    proxy_from_env: bool
    """Whether proxies are read from `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`: in
    Python by the rules of httpx or httpx2, in Node by those of undici, otherwise by those of the
    Rust crate.

    Default: true.
    """

    pool_idle: int
    """The maximum number of idle connections that are kept per host.

    Range: 0 to 65536. Default: 256.
    """

    pool_idle_timeout: Duration
    """The time for which an idle connection is kept. Range: 1ms to 30d. Default: 1m 30s."""

    http2_streams: int
    """The number of streams on an HTTP/2 connection at which another connection is opened.

    The default is below 100, the usual limit of servers. Range: 1 to 10000. Default: 90.
    """

    http2_prior_knowledge: bool
    """Whether `http://` URLs use HTTP/2 without TLS (h2c with prior knowledge). Default: false."""
