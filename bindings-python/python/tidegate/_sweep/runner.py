"""The functions that plan and run a sweep."""

from __future__ import annotations

import json
import warnings
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate._errors import SweepError
from tidegate._event_loop import run_native
from tidegate._sweep.options import create_sweep
from tidegate._sweep.progress import SweepProgress
from tidegate._sweep.result import SweepResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from tidegate import _native
    from tidegate._sweep.options import SweepOptions


def sweep(*, progress: Callable[[SweepProgress], object] | None = None, **options: Unpack[SweepOptions]) -> SweepResult:
    """Measures the concurrency cap of a server.

    A sweep sends a constant mix of requests, more than the cap allows at once, so that calls always
    wait. It raises the cap in steps, and compares the goodput of the steps (completed calls per
    second that meet the objectives). Calls take the production path: a gate with one target, with
    its retries and its Retry-After handling. They cost as much as any other call. `sweep_plan`
    estimates the cost, and `max_cost`, `max_tokens`, `max_time` and `max_calls` are hard ceilings.
    Ctrl-C ends the sweep with the result so far (`ended` is `interrupted`); a second Ctrl-C ends it
    at once.

    The result is the cap of one process. No other process should call the server during the sweep.

    Args:
        progress: Called several times a second in this thread. If it raises `KeyboardInterrupt`,
            the sweep ends as with Ctrl-C; any other exception ends the sweep at once.
        **options: See `SweepOptions`. Either `url` and `model`, or `config` and `target`, are
            required.

    Returns:
        The cap, its confidence interval, and the measurements.

    Raises:
        ConfigError: If the options are invalid, if there is no API key, or if the sweep to resume
            cannot be resumed.
        SweepError: If the first call fails, for example because the key or the model is wrong, or
            if it does not end within `max_time`.
        OSError: If a file cannot be read or opened. A result that cannot be saved is returned with
            a `RuntimeWarning`.
        KeyboardInterrupt: If the sweep is interrupted twice, or before there is a result.

    Example:
        ```python no-run
        result = tidegate.sweep(url="http://localhost:8000/v1", model="llama", max_time=600)
        print(result.cap, result.interval, result.because)
        print(result.lines)
        ```

    """
    native, out = _start(options)
    interrupted = False
    try:
        while True:
            try:
                event = native.next_blocking()
                if event is None:
                    break
                if progress is not None:
                    progress(SweepProgress.from_json(event))
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                native.stop()
        return _finish(native, out)
    except SweepError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        # A traceback may keep the sweep alive, which would go on.
        native.abort()


async def sweep_async(
    *, progress: Callable[[SweepProgress], object] | None = None, **options: Unpack[SweepOptions]
) -> SweepResult:
    """Measures the concurrency cap of a server, as `sweep` does, on asyncio or trio.

    Cancelling the coroutine ends every call at once and returns no result. A sweep with `out` can
    be continued with `resume`.

    Args:
        progress: Called several times a second on the event loop.
        **options: See `SweepOptions`.

    Returns:
        The cap, its confidence interval, and the measurements.

    Raises:
        ConfigError: As in `sweep`.
        SweepError: As in `sweep`.
        OSError: As in `sweep`.

    Example:
        ```python no-run
        result = await tidegate.sweep_async(url="http://localhost:8000/v1", model="llama")
        ```

    """
    native, out = _start(options)
    try:
        while (event := await run_native(native.next)) is not None:
            if progress is not None:
                progress(SweepProgress.from_json(event))
        return _finish(native, out)
    finally:
        # A task or a traceback may keep the sweep alive, which would go on.
        native.abort()


def sweep_plan(**options: Unpack[SweepOptions]) -> dict[str, Any]:
    """Estimates the cost of a sweep without sending a request.

    Args:
        **options: See `SweepOptions`.

    Returns:
        A dict with `calls`, `input_tokens`, `output_tokens`, `money` (None without prices) and
        `seconds`, each with `least`, `likely` and `most`; `mix`, a description of the requests; and
        `ceilings`.

    Raises:
        ConfigError: If the options are invalid, or if there is no API key.

    Example:
        ```python
        plan = tidegate.sweep_plan(url="http://localhost:8000/v1", model="llama")
        print(plan["calls"]["likely"], plan["seconds"]["most"])
        ```

    """
    native, _, _ = create_sweep(options)
    plan: dict[str, Any] = json.loads(native.plan())
    return plan


def _start(options: SweepOptions) -> tuple[_native.SweepRun, Path | None]:
    """Starts a sweep with these options.

    Returns the running native sweep, and the directory in which to save its results. The directory
    is None if the options have neither `out` nor `resume`.
    """
    native, key, out = create_sweep(options)
    began = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    directory = Path(options["resume"]) if options.get("resume") is not None else out
    return native.start(began, key, out), directory


def _finish(native: _native.SweepRun, out: Path | None) -> SweepResult:
    """Returns the result of a sweep that has ended.

    Saves it to the directory `out` unless that is None. Warns if it cannot be saved.
    """
    result = SweepResult.from_json(native.result())
    if out is not None:
        try:
            result.save(out)
        except OSError as error:
            warnings.warn(f"the sweep's result cannot be saved: {error}", RuntimeWarning, stacklevel=3)
    return result
