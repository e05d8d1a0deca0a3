"""The configuration: the keys of the file, as types. Units, ranges and defaults are those of its reference.

```python
from tidegate.config import TargetConfig

openai: TargetConfig = {"cap": 64, "ttft": 2, "tpm": "2M", "lanes": {"batch": {"queue": 500}}}
gate = tidegate.Gate(targets={"openai": openai})
```

They are for type checkers and editors: at run time each is a dict, and `tidegate.Gate` judges what is in it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, TypedDict

__all__ = [
    "Count",
    "Duration",
    "LaneConfig",
    "LanesConfig",
    "Limit",
    "LimitConfig",
    "Off",
    "PercentileConfig",
    "RateConfig",
    "RetryConfig",
    "StepConfig",
    "TargetConfig",
    "TargetSettings",
    "TenantConfig",
    "ToolConfig",
    "TransportConfig",
]

Duration = float | str | timedelta
"""Seconds, a `timedelta`, or text with units: `"500ms"`, `"2m"`."""

Count = int | str
"""A number of tokens or requests, also in thousands or millions: `"450k"`, `"1.5M"`."""

Off = Literal[False, "none"] | None
"""Switches a setting off that a lower layer made."""


class RetryConfig(TypedDict, total=False):
    """How a target's failed attempts are made again."""

    attempts: int
    base: Duration
    max: Duration
    ratio: float
    reserve: int


class StepConfig(TypedDict):
    """A cut by so many slots."""

    step: int


class PercentileConfig(TypedDict, total=False):
    """A percentile over a window as the detector.

    `quantile`: 0.01 to 0.999, by default 0.99. `window`: what it is taken over, by default 30 s. `tick`: how often it
    is looked at, by default 5 s. `band`: the dead band on either side of the objective, as a share of it, 0 to 0.9, by
    default 0.2. `hold`: ticks that pass after a cut before the next, by default 3.
    """

    quantile: float
    window: Duration
    tick: Duration
    band: float
    hold: int


class LimitConfig(TypedDict, total=False):
    """How a limit adapts. Its ceiling is the `cap` beside it.

    `start`: slots at the start, by default 8, or the nearest that floor and cap allow; it doubles from there until the
    first cut, and under a percentile rises by one a tick. `min`: the floor, by default 1. `awaiting`: the most calls
    that may await their first token at once, by default found as well with a `decrease` of `served`, else not bounded;
    not of a tool. `decrease`: how far a cut for late calls goes: to what the upstream is seen to serve at once
    (`served`, the default), to a share (0.1 to 0.99), or by a step. Whatever it says, 429s that are not for a rate cut
    to what was taken in; 503s, 529s, timeouts and a `tpot` that is missed, by a tenth. `detector`: what takes first
    tokens for too late, by default `exceedance`.
    """

    start: int
    min: int
    awaiting: int | Off
    decrease: Literal["served"] | float | StepConfig
    detector: Literal["exceedance", "percentile"] | PercentileConfig


Limit = Literal["adaptive", "fixed"] | LimitConfig
"""How many slots of a cap are in force: as many as the upstream can take, or all of them, always.

Without it the limit adapts, unless a `cap` is named and no objective is (`ttft`, also of a lane; a tool's `latency`):
then it is fixed at that cap.
"""


class TenantConfig(TypedDict, total=False):
    """A tenant, at a target or at all of them.

    `floor` is the share of the slots, 0 to 1, that is its own whenever it wants them; `tpm` what it may take a minute,
    with what it takes beyond it kept back later; with `shed` False its waiting calls make room for nobody.
    """

    weight: float
    cap: int | Off
    queue: int | Off
    floor: float
    tpm: Count | Off
    shed: bool


class LaneConfig(TypedDict, total=False):
    """What a lane has to itself: a share of the slots, and bounds in place of the target's."""

    floor: float
    queue: int | Off
    wait: Duration | Off
    ttft: Duration | Off


class LanesConfig(TypedDict, total=False):
    """The lanes of a target."""

    interactive: LaneConfig
    standard: LaneConfig
    batch: LaneConfig


class RateConfig(TypedDict, total=False):
    """What a provider allows, a minute (`m`) or a day (`d`): requests, tokens, input and output tokens.

    What is not set is not bounded until a response's headers speak of it.
    """

    rpm: Count | Off
    rpd: Count | Off
    tpm: Count | Off
    tpd: Count | Off
    itpm: Count | Off
    otpm: Count | Off
    burst: Duration
    counting: Literal["auto", "sum", "larger", "actual", "input"]
    headers: Literal["follow", "lower", "ignore"]


class TargetSettings(RateConfig, total=False):
    """How a target behaves; `defaults` takes all of it.

    `cap`: the most slots, by default 256: the limit itself where that is fixed, its ceiling where it adapts. `limit`:
    how many of them are in force; see `Limit`. `ttft`: the objective for the time to the first token, queue wait
    included, which an adaptive limit keeps to. `tpot`: the same for the time between two tokens, on average over a
    call; of an adaptive limit only.
    """

    cap: int
    limit: Limit
    queue: int
    wait: Duration | Off
    on_full: Literal["wait", "refuse"]
    deadline: Duration
    first_token: Duration | Off
    idle: Duration | Off
    stall: Duration | Off
    ttft: Duration | Off
    tpot: Duration | Off
    aging: Duration
    retry: RetryConfig
    tenants: dict[str, TenantConfig]
    default_tenant: TenantConfig
    backlog: int
    lanes: LanesConfig
    cost: Literal["auto", "tokens", "kv", "calls"]
    short_bias: Duration | Off
    reclaim: bool
    predict: Literal["deadline", "objective", "off"]
    max_prompt: Count | Off
    budget: str | Off
    kv_tokens: Count | Off
    kv_headroom: float
    tokenizer: Literal["learned", "bpe", "vllm"]
    ask_usage: bool
    fallback: str | Off


class ReplicaConfig(TypedDict, total=False):
    """A replica of a pool. It needs its `url`: its base URL, with `/v1` or without.

    `weight`: its share of the calls, beside the others' (0.01 to 100; 1). `models` and `kv_tokens`: what it serves, and
    the tokens that its memory holds; without them it is asked.
    """

    url: str
    weight: float
    models: str | list[str]
    kv_tokens: Count | Off


class PoolConfig(TypedDict, total=False):
    """A pool of replicas, which clients call at `http://NAME`, NAME being the target's.

    Its replicas are named by one of `replicas`, `dns` (`"http://vllm.internal:8000"`, each address of which is one) and
    `file` (TOML, JSON, or a URL a line); without any of them by `Gate.set_replicas`. `cap`: the most slots of each; it
    is the limit itself where there is no objective. `health`: the path that says whether one is well. `poll`: how
    often its load is asked. `hedge`: after how long without a first token a call is tried elsewhere
    as well: streams only, in mode `enforce`, and never of a client that keeps its own transport.
    `key_env`: the environment variable with the key that `/v1/models` is asked with.
    """

    replicas: list[str | ReplicaConfig]
    dns: str
    dns_every: Duration
    file: str
    file_every: Duration
    cap: int
    health: str | Off
    poll: Duration | Off
    down_after: Duration
    cut_after: Duration
    slow_start: Duration | Off
    session: str | Off
    affinity: bool
    hedge: Duration | Off
    key_env: str


class TargetConfig(TargetSettings, total=False):
    """A target: how it behaves, which requests are its, and how calls reach it that fall back to it.

    `pool`: its replicas, where it is not one endpoint; a list is short for a pool of these.
    `forward_headers`: caller headers that this target receives, beside the standard allowlist, when
    a call falls back to it on another server or with `key_env`. Default: none.
    """

    url: str | list[str]
    models: str | list[str]
    model: str
    key_env: str
    forward_headers: str | list[str]
    pool: PoolConfig | list[str | ReplicaConfig]


class ToolConfig(TypedDict, total=False):
    """A tool. It needs its `cap`; of `rps` and `rpm`, calls a second and a minute, it has one.

    `latency`: the objective for how long a call takes, which an adaptive `limit` keeps to; without either of them the
    limit is fixed at the cap.
    """

    cap: int
    limit: Limit
    latency: Duration | Off
    queue: int
    wait: Duration | Off
    on_full: Literal["wait", "refuse"]
    rps: float | Off
    rpm: Count | Off


class TransportConfig(TypedDict, total=False):
    """How connections are made."""

    connect: Duration
    proxy_from_env: bool
    pool_idle: int
    pool_idle_timeout: Duration
    http2_streams: int
    http2_prior_knowledge: bool
