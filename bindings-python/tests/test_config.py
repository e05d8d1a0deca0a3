"""Tests that the configuration types have the core's keys, and that settings reach the core."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import pytest

import tidegate
from tidegate import _errors, config
from vectors import FOLDER, Case, every


def known_keys(**settings: Any) -> set[str]:
    """Returns the valid keys that the core lists in its error about the unknown key `wibble`.

    `settings` are arguments of `Gate` that contain this key.
    """
    with pytest.raises(tidegate.ConfigError) as raised:
        tidegate.Gate(**settings)
    (line,) = str(raised.value).splitlines()
    return set(line.split("the keys here are ")[1].split(", "))


UNKNOWN_KEY = {"wibble": 1}


@pytest.mark.parametrize(
    ("typed", "settings"),
    [
        (config.TargetConfig, {"targets": {"openai": UNKNOWN_KEY}}),
        (config.TargetSettings, {"defaults": UNKNOWN_KEY}),
        (config.RateConfig, {"budgets": {"account": UNKNOWN_KEY}, "defaults": {"budget": "account"}}),
        (config.TenantConfig, {"tenants": {"acme": UNKNOWN_KEY}}),
        (config.LanesConfig, {"defaults": {"lanes": UNKNOWN_KEY}}),
        (config.LaneConfig, {"defaults": {"lanes": {"batch": UNKNOWN_KEY}}}),
        (config.RetryConfig, {"defaults": {"retry": UNKNOWN_KEY}}),
        (config.LimitConfig, {"defaults": {"limit": UNKNOWN_KEY}}),
        (config.StepConfig, {"defaults": {"limit": {"decrease": {"step": 1, **UNKNOWN_KEY}}}}),
        (config.PercentileConfig, {"tools": {"db": {"cap": 1, "limit": {"detector": UNKNOWN_KEY}}}}),
        (config.ToolConfig, {"tools": {"db": {"cap": 1, **UNKNOWN_KEY}}}),
        (config.ShareConfig, {"share": UNKNOWN_KEY}),
        (config.TransportConfig, {"transport": UNKNOWN_KEY}),
    ],
)
def test_types_have_the_keys_of_the_core(typed: Any, settings: dict[str, Any]) -> None:
    assert typed.__required_keys__ | typed.__optional_keys__ == known_keys(**settings)


def test_every_setting_of_the_types_is_accepted() -> None:
    account: config.RateConfig = {"rpm": 500, "tpm": "2M", "burst": timedelta(seconds=2), "counting": "actual"}
    openai: config.TargetConfig = {
        "cap": 64,
        "ttft": 2,
        "tpot": timedelta(milliseconds=50),
        "limit": {"start": 16, "awaiting": None, "decrease": {"step": 4}, "detector": {"window": timedelta(minutes=1)}},
        "budget": "account",
        "lanes": {"interactive": {"floor": 0.5, "ttft": timedelta(seconds=1)}, "batch": {"queue": 500, "wait": None}},
        "tenants": {"acme": {"floor": 0.2, "tpm": "250k", "shed": False}},
        "predict": "objective",
        "short_bias": "100ms",
        "max_prompt": 200_000,
        "fallback": "spare",
    }
    spare: config.TargetConfig = {
        "url": "http://127.0.0.1:8000/v1",
        "model": "llama-3",
        "key_env": "SPARE_API_KEY",
        "forward_headers": ["x-tenant-id"],
        "kv_tokens": "400k",
        "tokenizer": "vllm",
        "rpm": None,
    }
    search: config.ToolConfig = {"cap": 4, "rps": 2.5, "limit": "adaptive", "latency": "200ms"}
    share: config.ShareConfig = {"store": "off", "name": "web", "strict": True}
    gate = tidegate.Gate(
        targets={"openai": openai, "spare": spare},
        tools={"search": search},
        budgets={"account": account},
        mode="observe",
        share=share,
    )
    assert gate.target_for("http://127.0.0.1:8000/v1/chat/completions") == "spare"


@every("errors")
def test_reason_type_lists_the_reasons_of_the_core(case: Case) -> None:
    reason = case["error"].get("reason")
    assert reason is None or reason in get_args(_errors.Reason)


def test_every_reason_has_a_vector() -> None:
    text = (FOLDER / "errors.json").read_text(encoding="utf-8")
    assert all(f'"reason": "{reason}"' in text for reason in get_args(_errors.Reason))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"defaults": {"wait": float("inf")}}, "defaults.wait: inf is not possible"),
        ({"targets": {"small": {"pool": [{"weight": float("nan")}]}}}, "targets.small.pool.0.weight: nan"),
    ],
)
def test_numbers_that_are_not_finite_are_rejected_by_name(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(tidegate.ConfigError, match=problem):
        tidegate.Gate(**settings)
