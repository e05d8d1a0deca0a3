"""What a sweep is asked for."""

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
    """What `tidegate.sweep` takes: the command line's flags, by Python's names.

    Durations are seconds, or a `timedelta`. What is None is as if it were not given.
    """

    url: str
    """Base URL of the server (`http://localhost:8000/v1`), or of the endpoint itself."""
    model: str
    """The model that calls name."""
    config: StrPath
    """A configuration file; with `target`."""
    target: str
    """Take URL, model, key, retries, rates and objective from this target of `config`; other options go over them."""
    api: Literal["chat", "completions", "responses", "messages"]
    """The kind of endpoint. Default: what the URL says, else chat."""
    api_key: str
    """The key. Default: that of `key_env`."""
    key_env: str
    """The environment variable that holds the key. Default: the provider's usual one, where the host is a well-known
    provider's."""
    input_tokens: int
    """Tokens of a prompt, in the mean. Default 512."""
    output_tokens: int
    """The most tokens of an answer, in the mean (default 128); with `prompts`, of those that name no maximum."""
    spread: float
    """How far lengths spread about their means: deviation over mean of a log-normal distribution, 0 to 3. Default 0."""
    trace: StrPath
    """CSV file with lengths: columns input,output, or Azure's TIMESTAMP,ContextTokens,GeneratedTokens."""
    prompts: StrPath
    """JSONL file with your own requests: bodies, OpenAI batch lines, or `{"prompt": "..."}`."""
    exact_output: bool
    """Have answers be as long as they may be, by vLLM's `ignore_eos`; providers refuse that."""
    seed: int
    """Of prompts, lengths and their order. Default 1."""
    start: int
    """The first cap. Default 4."""
    min_cap: int
    """The lowest cap that is looked at. Default 1."""
    max_cap: int
    """The highest. Default 512."""
    ttft: Seconds
    """From slot to first token: calls that take longer are answered, and not good. Default: none."""
    tpot: Seconds
    """Between tokens, in the mean of a call, likewise."""
    tolerance: float
    """How far below the best the answer's goodput may be. Default .02."""
    too_many: float
    """The share of failed attempts that is too many. Default .03."""
    confidence: float
    """How often intervals shall hold the truth. Default .95."""
    price_in: float
    """Price of a million tokens of prompts."""
    price_out: float
    """Price of a million tokens of answers."""
    max_cost: float
    """Send nothing that could bring the cost above this."""
    max_tokens: int
    """Send nothing that could bring the tokens, in and out, above this."""
    max_time: Seconds
    """Send nothing that would take longer than this, and cut off what does."""
    max_calls: int
    """Send no more requests than this, retries among them."""
    engine_metrics: bool
    """Whether vLLM's `/metrics` at the same origin are read along, where they answer. Default True."""
    name: str
    """The target's name in the lines to paste. Default: the model's."""
    out: StrPath
    """Write the report, the result, the log of calls, and a journal to resume from, into this directory."""
    resume: StrPath
    """Go on with the sweep in this directory: the same settings, but for ceilings."""


#: Where each stands in the native options.
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
_LENGTHS = ("input_tokens", "output_tokens", "spread")
_OTHER_OPTIONS = frozenset({"config", "target", "api_key", "key_env", "out", "resume", "trace", "prompts", *_LENGTHS})


def create_sweep(options: SweepOptions) -> tuple[_native.Sweep, str | None, Path | None]:
    """Check what is asked for; return the sweep, its key and its directory."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for name in given.keys() - _NATIVE_KEYS.keys() - _OTHER_OPTIONS:
        near = difflib.get_close_matches(name, [*_NATIVE_KEYS, *_OTHER_OPTIONS], n=1)
        raise TypeError(f"sweep has no option {name!r}" + (f"; is {near[0]!r} meant?" if near else ""))
    if ("target" in given) != ("config" in given):
        raise _config_error("target and config belong together: the name of a target, and the file that has it")
    if ("price_in" in given) != ("price_out" in given):
        raise _config_error("price_in and price_out belong together")
    if "resume" in given and "out" in given:
        raise _config_error("resume goes on in its own directory: leave out away")
    for name in ("url", "model"):
        if name not in given and "target" not in given and "resume" not in given:
            raise _config_error(f"give {name}, or a target and its config")
    target = (Path(given["config"]), str(given["target"])) if "target" in given else None
    resume = Path(given["resume"]) if "resume" in given else None
    sweep = _native.Sweep(json.dumps(_native_options(given), allow_nan=False), target, resume)
    out = Path(given["out"]) if "out" in given else None
    return sweep, _api_key(sweep, given), out


def _native_options(given: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in given.items():
        if name in _NATIVE_KEYS:
            *outer, last = _NATIVE_KEYS[name]
            place = nested
            for key in outer:
                place = place.setdefault(key, {})
            place[last] = value.total_seconds() if isinstance(value, timedelta) else value
    mix = _mix(given)
    return {**nested, "mix": mix} if mix else nested


def _mix(given: dict[str, Any]) -> dict[str, Any] | None:
    lengths = given.keys() & set(_LENGTHS)
    if "trace" in given:
        if lengths or "prompts" in given:
            raise _config_error("trace says the lengths: leave input_tokens, output_tokens, spread and prompts away")
        return {"from": "trace", "path": str(Path(given["trace"]))}
    if "prompts" in given:
        if lengths - {"output_tokens"}:
            raise _config_error("prompts are your own requests: leave input_tokens and spread away")
        return {"from": "lines", "path": str(Path(given["prompts"])), "output": given.get("output_tokens")}
    if not lengths:
        return None
    spread = {"spread": float(given["spread"])} if "spread" in given else {}
    sides = {"input": "input_tokens", "output": "output_tokens"}
    means = {side: {"mean": given[name]} if name in given else {} for side, name in sides.items()}
    return {"from": "synthetic", **{side: {**mean, **spread} for side, mean in means.items()}}


def _api_key(sweep: _native.Sweep, given: dict[str, Any]) -> str | None:
    if "api_key" in given:
        return str(given["api_key"])
    variable = given.get("key_env") or sweep.usual_key_env()
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise _config_error(f"{variable} holds no key for {sweep.host()}: set it, or give api_key or key_env")
    return key


def _config_error(text: str) -> ConfigError:
    return ConfigError(text, kind="config")
