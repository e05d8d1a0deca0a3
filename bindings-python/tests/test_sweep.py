"""Tests of sweeps from Python: options, interruption and results. The search is tested in Rust."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate
from simulator import Provider, simulated
from tidegate._sweep.options import create_sweep

#: Calls that the server processes at once.
LIMIT = 6
#: Options for few and short calls.
QUICK: dict[str, Any] = {"model": "sim", "input_tokens": 64, "output_tokens": 16, "max_cap": 16}


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    """Runs a simulated server that answers calls above a fixed concurrency with 429, and yields it.

    Its answers are slow, so that the tests also pass on a busy machine.
    """
    with simulated(tmp_path_factory.mktemp("sim"), faults={"concurrency_limit": LIMIT}, step_ms=20) as server:
        yield server


@pytest.fixture(scope="module")
def found(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> tuple[tidegate.SweepResult, list[Any], Path]:
    """Runs one sweep for all tests of the module.

    Returns its result, the reports of its progress, and the directory of its files.
    """
    reports: list[tidegate.SweepProgress] = []
    out = tmp_path_factory.mktemp("out")
    result = tidegate.sweep(
        url=provider.base_url, **QUICK, api_key="sk-hidden", out=out, price_in=1, price_out=2, progress=reports.append
    )
    return result, reports, out


def test_sweep_finds_the_cap_and_its_reason(found: tuple[tidegate.SweepResult, list[Any], Path]) -> None:
    result, _, _ = found
    assert result.cap is not None
    assert result.ended == "found"
    assert f"cap = {result.cap}" in result.lines
    assert result.steps
    assert result.cap in {step.cap for step in result.steps if step.verdict == "accepted"}
    assert any(step.failures.get("limited") for step in result.steps)
    assert result.spend.money is not None
    assert result.spend.money > 0
    assert f"cap {result.cap}" in repr(result)
    assert result.provenance["model"] == "sim"


def test_progress_reports_each_step_once(found: tuple[tidegate.SweepResult, list[Any], Path]) -> None:
    result, reports, _ = found
    assert [progress.step_ended for progress in reports if progress.step_ended] == result.steps
    assert reports[0].state == "preflight"
    assert {"holding"} <= {progress.state for progress in reports}


def test_output_directory_has_the_result_and_no_key(found: tuple[tidegate.SweepResult, list[Any], Path]) -> None:
    result, _, out = found
    assert {"report.html", "result.json", "steps.csv", "calls.jsonl"} <= {path.name for path in out.iterdir()}
    assert tidegate.SweepResult.load(out) == result
    for path in out.iterdir():
        assert b"sk-hidden" not in path.read_bytes(), path.name


def test_data_frame_has_the_steps(found: tuple[tidegate.SweepResult, list[Any], Path]) -> None:
    pytest.importorskip("pandas")
    result, _, _ = found
    frame = result.to_pandas()
    assert list(frame["cap"]) == [step.cap for step in result.steps]
    assert list(frame["why"]) == [step.why for step in result.steps]
    assert list(frame["failed_limited"]) == [step.failures.get("limited", 0) for step in result.steps]


def test_missing_pandas_is_an_error_with_advice(
    found: tuple[tidegate.SweepResult, list[Any], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        found[0].to_pandas()


def test_notebook_displays_the_result(found: tuple[tidegate.SweepResult, list[Any], Path], tmp_path: Path) -> None:
    result, _, _ = found
    card = result._repr_html_()
    assert f"<strong>{result.cap}</strong>" in card
    assert "<svg" in card
    figure = result.plot()
    assert figure._repr_svg_() in figure._repr_html_()
    assert ET.fromstring(figure.svg).tag == "{http://www.w3.org/2000/svg}svg"
    figure.save(tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_text(encoding="utf-8") == result.plot("throughput").svg
    with pytest.raises(ValueError, match="timeline"):
        result.plot("pie")  # type: ignore[arg-type]


def test_saved_report_is_read_back(found: tuple[tidegate.SweepResult, list[Any], Path], tmp_path: Path) -> None:
    result, _, _ = found
    report = result.save(tmp_path / "made")
    assert report.read_text(encoding="utf-8") == result.html()
    again = tidegate.SweepResult.from_json(result.json())
    assert again == result
    with pytest.raises(ValueError, match="not the result of a sweep"):
        tidegate.SweepResult.from_json("{}")
    later = json.dumps({**json.loads(result.json()), "format": 99})
    with pytest.raises(ValueError, match="format 99"):
        tidegate.SweepResult.from_json(later)


def test_sweep_ends_at_a_ceiling_and_resumes(provider: Provider, tmp_path: Path) -> None:
    first = tidegate.sweep(url=provider.base_url, **QUICK, max_calls=30, out=tmp_path)
    assert first.ended == "calls"
    assert first.spend.attempts <= 30
    second = tidegate.sweep(resume=tmp_path, max_calls=60)
    assert second.ended == "calls"
    assert first.spend.calls < second.spend.calls
    assert second.spend.attempts <= 60
    assert second.provenance["resumed"] == 1
    with pytest.raises(tidegate.ConfigError, match="seed"):
        tidegate.sweep(resume=tmp_path, seed=2)


def test_result_that_cannot_be_saved_is_returned(provider: Provider, tmp_path: Path) -> None:
    (tmp_path / "result.json").mkdir()
    with pytest.warns(RuntimeWarning, match=r"cannot be saved.*result\.json"):
        result = tidegate.sweep(url=provider.base_url, **QUICK, max_calls=30, out=tmp_path)
    assert result.spend.calls > 0


def test_ctrl_c_returns_the_result_so_far(provider: Provider) -> None:
    def interrupt(progress: tidegate.SweepProgress) -> None:
        if progress.spend.calls > 10:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):  # The second Ctrl-C ends the sweep at once.
        tidegate.sweep(url=provider.base_url, **QUICK, progress=interrupt)

    left = [True]

    def stop_at_first(progress: tidegate.SweepProgress) -> None:
        if left and progress.spend.calls > 10:
            left.pop()
            signal.raise_signal(signal.SIGINT)

    result = tidegate.sweep(url=provider.base_url, **QUICK, progress=stop_at_first)
    assert result.ended == "interrupted"
    assert result.spend.calls > 10


def test_exception_of_the_callback_ends_the_sweep(provider: Provider) -> None:
    def fail(progress: tidegate.SweepProgress) -> None:
        raise LookupError(progress.state)

    with pytest.raises(LookupError):
        tidegate.sweep(url=provider.base_url, **QUICK, progress=fail)


async def test_sweep_runs_on_asyncio(provider: Provider) -> None:
    reports: list[tidegate.SweepProgress] = []
    result = await tidegate.sweep_async(url=provider.base_url, **QUICK, max_calls=30, progress=reports.append)
    assert result.ended == "calls"
    assert reports


async def test_cancelled_sweep_leaves_no_call_in_flight(provider: Provider) -> None:
    holding = asyncio.Event()

    def record_progress(progress: tidegate.SweepProgress) -> None:
        if progress.in_flight:
            holding.set()

    task = asyncio.create_task(tidegate.sweep_async(url=provider.base_url, **QUICK, progress=record_progress))
    await holding.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    seen = -1
    async with asyncio.timeout(20):
        # No more calls arrive: two later counts are equal.
        while seen != (seen := await asyncio.to_thread(lambda: sum(provider.statuses().values()))):
            await asyncio.sleep(0.2)


def test_unreachable_server_is_an_error() -> None:
    with pytest.raises(tidegate.SweepError) as caught:
        tidegate.sweep(url="http://127.0.0.1:9/v1", model="sim")
    assert caught.value.kind == "sweep"
    assert "127.0.0.1:9" in str(caught.value)


def test_max_time_ends_the_first_call() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # Never answers.
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        with pytest.raises(tidegate.SweepError, match="within max_time"):
            tidegate.sweep(url=url, model="sim", max_time=0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "m"}, "give url"),
        ({"url": "http://h/v1", "model": "m", "start": 9, "max_cap": 4}, "start <= max.cap"),
        ({"url": "http://h/v1", "model": "m", "max_cost": 1.0}, "price_in"),
        ({"url": "http://h/v1", "model": "m", "target": "t"}, "config"),
        ({"url": "http://h/v1", "model": "m", "ttft": "3s"}, "ttft: got a str"),
        ({"url": "http://h/v1", "model": "m", "trace": "t.csv", "spread": 1}, "spread"),
        ({"url": "https://api.openai.com/v1", "model": "gpt-4o"}, "OPENAI_API_KEY"),
    ],
)
def test_invalid_options_are_errors(options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(tidegate.ConfigError, match=message) as caught:
        tidegate.sweep(**options)
    assert "--" not in str(caught.value), "flags are the command line's"


def test_unknown_option_names_the_nearest() -> None:
    with pytest.raises(TypeError, match="max_tokens"):
        tidegate.sweep(url="http://h/v1", model="m", max_token=4)  # type: ignore[call-arg]


def test_plan_sends_no_request() -> None:
    plan = tidegate.sweep_plan(url="http://127.0.0.1:9/v1", model="m", price_in=1, price_out=2, max_calls=100)
    assert plan["calls"]["most"] <= 100
    assert plan["money"]["least"] > 0
    assert "512" in plan["mix"]


def test_target_of_a_configuration_is_swept(provider: Provider, tmp_path: Path) -> None:
    config = tmp_path / "tidegate.toml"
    config.write_text(f'[targets.sim]\nurl = "{provider.base_url}"\nmodels = ["sim"]\ncap = 3\nttft = "5s"\n')
    quick = {name: value for name, value in QUICK.items() if name != "model"}
    result = tidegate.sweep(config=config, target="sim", **quick, max_calls=30)
    assert result.provenance["target"] == "sim"
    assert result.provenance["settings"]["ttft"] == 5
    with pytest.raises(tidegate.ConfigError, match="it has sim"):
        tidegate.sweep(config=config, target="other")


def test_sweep_of_a_target_resumes_with_the_options_that_overrode_it(provider: Provider, tmp_path: Path) -> None:
    config, out = tmp_path / "tidegate.toml", tmp_path / "out"
    config.write_text(f'[targets.sim]\nurl = "{provider.base_url}"\nmodels = ["sim"]\nttft = "5s"\n')
    quick = {name: value for name, value in QUICK.items() if name != "model"}
    tidegate.sweep(config=config, target="sim", **quick, ttft=4, name="other", max_calls=30, out=out)
    resumed = tidegate.sweep(config=config, target="sim", resume=out, max_calls=60)
    assert resumed.provenance["resumed"] == 1
    assert resumed.provenance["settings"]["ttft"] == 4


def test_key_of_a_configured_target_is_read_from_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "tidegate.toml"
    config.write_text(
        '[targets.own]\nurl = "http://127.0.0.1:9/v1"\nmodels = ["m"]\nkey_env = "KEY_OF_TARGET"\n'
        '[targets.first]\nurl = "http://127.0.0.1:8/v1"\nmodels = ["m"]\nfallback = "own"\n'
    )

    def key(**given: Any) -> str | None:
        options: Any = {"config": config, "target": "own", **given}
        return create_sweep(options)[1]

    monkeypatch.delenv("KEY_OF_TARGET", raising=False)
    with pytest.raises(tidegate.ConfigError, match="KEY_OF_TARGET"):
        key()
    monkeypatch.setenv("KEY_OF_TARGET", "sk-target")
    monkeypatch.setenv("OTHER_KEY", "sk-other")
    assert key() == "sk-target"
    assert key(key_env="OTHER_KEY") == "sk-other"
    assert key(api_key="sk-given") == "sk-given"
