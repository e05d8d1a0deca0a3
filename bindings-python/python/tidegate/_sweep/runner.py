"""The sweep itself."""

from __future__ import annotations

import json
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
    """Find the cap that a server bears: hold the mix of requests constant under a backlog, raise the cap, and look.

    ```python
    found = tidegate.sweep(url="http://localhost:8000/v1", model="llama", max_time=600)
    print(found.cap, found.interval, found.because)
    print(found.lines)
    ```

    Calls go the way of production: through a gate with one target, with its retries and its Retry-After. They cost what
    calls cost: `sweep_plan` says how much beforehand, and `max_cost`, `max_tokens`, `max_time` and `max_calls` are hard
    ceilings. Ctrl-C ends it with what is known by then (`ended` is `interrupted`), a second one at once.

    The cap is one process's to this target: while it runs, nothing else should call it.

    Args:
        progress: called several times a second, in this thread. A `KeyboardInterrupt` that it raises is as Ctrl-C;
            anything else ends the sweep at once.
        **options: see `SweepOptions`; `url` and `model`, or `config` and `target`, are needed.

    Raises:
        ConfigError: for options that cannot work, a key that is not there, and a sweep that cannot be resumed.
        SweepError: where the first call shows that there is nothing to sweep: a wrong key or model, nobody there.
        OSError: for a file that cannot be read or written.
        KeyboardInterrupt: interrupted before anything was known, or twice.

    """
    native, out = _start(options)
    interrupted = False
    while True:
        try:
            told = native.next_blocking()
            if told is None:
                return _finish(native, out)
            if progress is not None:
                progress(SweepProgress.from_json(told))
        except KeyboardInterrupt:  # noqa: PERF203 - ten times a second
            if interrupted:
                raise
            interrupted = True
            native.stop()
        except SweepError:
            if interrupted:
                raise KeyboardInterrupt from None
            raise


async def sweep_async(
    *, progress: Callable[[SweepProgress], object] | None = None, **options: Unpack[SweepOptions]
) -> SweepResult:
    """Sweep as `sweep` does, on asyncio. Cancelling it ends every call at once; nothing is returned then.

    What `out` names can be gone on with by `resume`.
    """
    native, out = _start(options)
    while (told := await run_native(native.next)) is not None:
        if progress is not None:
            progress(SweepProgress.from_json(told))
    return _finish(native, out)


def sweep_plan(**options: Unpack[SweepOptions]) -> dict[str, Any]:
    """Say what a sweep would take, and send nothing.

    Returns:
        `calls`, `input_tokens`, `output_tokens`, `money` (None where no prices are known) and `seconds`, each with
        `least`, `likely` and `most`; `mix` in words; the `ceilings`.

    """
    native, _, _ = create_sweep(options)
    plan: dict[str, Any] = json.loads(native.plan())
    return plan


def _start(options: SweepOptions) -> tuple[_native.SweepRun, Path | None]:
    native, key, out = create_sweep(options)
    began = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    kept = Path(options["resume"]) if options.get("resume") is not None else out
    return native.start(began, key, out), kept


def _finish(native: _native.SweepRun, out: Path | None) -> SweepResult:
    result = SweepResult.from_json(native.result())
    if out is not None:
        result.save(out)
    return result
