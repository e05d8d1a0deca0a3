"""The options of a sweep."""

from __future__ import annotations

import difflib
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypedDict

from tidegate import _native
from tidegate._errors import ConfigError

StrPath = str | os.PathLike[str]
Seconds = float | timedelta


class SweepOptions(TypedDict, total=False):
    """The options of `tidegate.sweep`, which are the flags of the command `tidegate sweep`.

    Durations are seconds or a `timedelta`. None means that the option is not given.
    """

    url: str
    """Base URL of the server (`http://localhost:8000/v1`), or URL of the endpoint."""
    model: str
    """Model that the calls name."""
    config: StrPath
    """Path of a configuration file. Requires `target`."""
    target: str
    """Target of `config` that provides URL, model, key, retries, rates and objective.

    Other options override it.
    """
    api: Literal["chat", "completions", "responses", "messages"]
    """Kind of endpoint. Default: from the URL, otherwise `chat`."""
    api_key: str
    """API key. Default: the value of `key_env`."""
    key_env: str
    """Environment variable with the API key.

    Default: the `key_env` of the target, otherwise the usual variable of a known provider's host.
    """
    input_tokens: int
    """Mean prompt length in tokens. Default: 512."""
    output_tokens: int
    """Mean of the maximum answer length in tokens.

    Default: 128. With `prompts`, it applies to requests without a maximum.
    """
    spread: float
    """Standard deviation of the lengths divided by their mean (log-normal), 0 to 3. Default: 0."""
    trace: StrPath
    """CSV file with lengths: columns `input,output`, or Azure's
    `TIMESTAMP,ContextTokens,GeneratedTokens`.
    """
    prompts: StrPath
    """JSONL file with your own requests: bodies, OpenAI batch lines, or `{"prompt": "..."}`."""
    exact_output: bool
    """Whether answers have exactly their maximum length, by vLLM's `ignore_eos`.

    With `prompts`, each request needs a maximum. Providers reject it. Default: False.
    """
    seed: int
    """Seed of prompts, lengths and their order. Default: 1."""
    start: int
    """First cap. Default: 4."""
    min_cap: int
    """Lowest cap that is measured. Default: 1."""
    max_cap: int
    """Highest cap that is measured. Default: 512."""
    ttft: Seconds
    """Objective for the time from admission to the first token.

    Slower calls do not count as goodput. Default: none.
    """
    tpot: Seconds
    """Objective for the mean time between tokens of a call.

    Slower calls do not count as goodput. Default: none.
    """
    tolerance: float
    """Accepted loss of goodput against the best step, as a share. Default: 0.02."""
    too_many: float
    """Share of failed attempts above which a cap is rejected. Default: 0.03."""
    confidence: float
    """Confidence level of the intervals. Default: 0.95."""
    price_in: float
    """Price of a million input tokens."""
    price_out: float
    """Price of a million output tokens."""
    max_cost: float
    """Maximum cost, in the currency of the prices. No request is sent that could exceed it."""
    max_tokens: int
    """Maximum number of input and output tokens. No request is sent that could exceed it."""
    max_time: Seconds
    """Maximum duration. Requests in flight are cancelled when it is over."""
    max_calls: int
    """Maximum number of requests, including retries."""
    engine_metrics: bool
    """Whether to read vLLM's `/metrics` at the same origin, if they are available.

    Default: True.
    """
    name: str
    """Name of the target in the resulting configuration. Default: the name of the model."""
    out: StrPath
    """Directory for the report, the result, the records of calls, and a journal to resume from."""
    resume: StrPath
    """Directory of a sweep to continue, with the same settings except for ceilings.

    `config`, `target`, `api_key`, `key_env` and a `url` with a query must be given again.
    """


#: The path of each option in the native options.
_NATIVE_KEYS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in ("url", "model", "api", "name", "exact_output", "seed", "engine_metrics")},
    **{
        name: ("search", name)
        for name in ("start", "min_cap", "max_cap", "ttft", "tpot", "tolerance", "too_many", "confidence")
    },
    "price_in": ("prices", "input"),
    "price_out": ("prices", "output"),
    "max_cost": ("ceilings", "cost"),
    "max_tokens": ("ceilings", "tokens"),
    "max_time": ("ceilings", "seconds"),
    "max_calls": ("ceilings", "calls"),
}
_DURATIONS = ("ttft", "tpot", "max_time")
_LENGTHS = ("input_tokens", "output_tokens", "spread")
_OTHER_OPTIONS = frozenset({"config", "target", "api_key", "key_env", "out", "resume", "trace", "prompts", *_LENGTHS})


def create_sweep(options: SweepOptions) -> tuple[_native.Sweep, str | None, Path | None]:
    """Checks the options of a sweep.

    Returns the native sweep, its API key, and its output directory. The key is None if neither the
    options nor the target name one, and the provider is not known or has no usual environment
    variable for its key. The directory is None without `out`.

    Raises:
        TypeError: If there is no such option. The message names the nearest one.
        ConfigError: If the options contradict each other, or if the environment variable that
            should contain the key is empty or not set.

    """
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for name in given.keys() - _NATIVE_KEYS.keys() - _OTHER_OPTIONS:
        near = difflib.get_close_matches(name, [*_NATIVE_KEYS, *_OTHER_OPTIONS], n=1)
        raise TypeError(f"sweep has no option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    if ("target" in given) != ("config" in given):
        raise _config_error("give target and config together: the name of a target, and its configuration file")
    if ("price_in" in given) != ("price_out" in given):
        raise _config_error("give price_in and price_out together")
    if "resume" in given and "out" in given:
        raise _config_error("resume continues in its own directory: remove out")
    for name in ("url", "model"):
        if name not in given and "target" not in given and "resume" not in given:
            raise _config_error(f"give {name}, or a target and its config")
    target = (Path(given["config"]), str(given["target"])) if "target" in given else None
    resume = Path(given["resume"]) if "resume" in given else None
    sweep = _native.Sweep(json.dumps(_native_options(given), allow_nan=False), target, resume)
    out = Path(given["out"]) if "out" in given else None
    return sweep, _api_key(sweep, given), out


def _native_options(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the options in the nested form that the native sweep reads as JSON."""
    nested: dict[str, Any] = {}
    for name, value in given.items():
        if name in _NATIVE_KEYS:
            *outer, last = _NATIVE_KEYS[name]
            place = nested
            for key in outer:
                place = place.setdefault(key, {})
            place[last] = _seconds(name, value) if name in _DURATIONS else value
    mix = _mix(given)
    return {**nested, "mix": mix} if mix else nested


def _seconds(name: str, value: Any) -> float:
    """Returns an option that is a duration in seconds. `name` is the name of the option.

    Raises:
        ConfigError: If the value is not a duration.

    """
    if isinstance(value, timedelta):
        return value.total_seconds()
    if not isinstance(value, (int, float)):
        raise _config_error(f"{name}: got a {type(value).__name__}; give a number of seconds or a timedelta")
    return value


def _mix(given: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the native options that describe which requests the sweep sends.

    Returns None if no option describes them. The native sweep then uses its default mix of prompt
    and answer lengths.

    Raises:
        ConfigError: If the options name more than one source of requests.

    """
    lengths = given.keys() & set(_LENGTHS)
    if "trace" in given:
        if lengths or "prompts" in given:
            raise _config_error("trace has the lengths: remove input_tokens, output_tokens, spread and prompts")
        return {"from": "trace", "path": str(Path(given["trace"]))}
    if "prompts" in given:
        if lengths - {"output_tokens"}:
            raise _config_error("prompts has the requests: remove input_tokens and spread")
        return {"from": "lines", "path": str(Path(given["prompts"])), "output": given.get("output_tokens")}
    if not lengths:
        return None
    spread = {"spread": float(given["spread"])} if "spread" in given else {}
    sides = {"input": "input_tokens", "output": "output_tokens"}
    means = {side: {"mean": given[name]} if name in given else {} for side, name in sides.items()}
    return {"from": "synthetic", **{side: {**mean, **spread} for side, mean in means.items()}}


def _api_key(sweep: _native.Sweep, given: dict[str, Any]) -> str | None:
    """Returns the API key: `api_key`, or the value of an environment variable.

    The name of the variable is the option `key_env`, otherwise the `key_env` of the configured
    target, otherwise the usual one of the provider (such as `OPENAI_API_KEY`). Returns None if there
    is neither an `api_key` nor such a name.

    Raises:
        ConfigError: If the environment variable is empty or not set.

    """
    if "api_key" in given:
        return str(given["api_key"])
    variable = given.get("key_env") or sweep.key_env()
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise _config_error(
            f"the environment variable {variable} has no API key for {sweep.host()}: set it, or give api_key or key_env"
        )
    return key


def _config_error(text: str) -> ConfigError:
    return ConfigError(text, kind="config")
