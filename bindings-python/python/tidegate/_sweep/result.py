"""The result of a sweep."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tidegate import _native

if TYPE_CHECKING:
    import os

Binding = Literal["concurrency_limit", "request_rate", "token_rate", "saturation", "kv_cliff", "client", "not_reached"]
FigureName = Literal["throughput", "around", "tradeoff", "ttft", "tpot", "calls", "held", "timeline"]


class SweepEstimate(NamedTuple):
    """An estimated value with the lower and upper bound of its confidence interval.

    The confidence level is the option `confidence` of the sweep, 0.95 by default.
    """

    value: float
    low: float
    high: float


class SweepQuantiles(NamedTuple):
    """Quantiles of `n` durations, in seconds.

    A quantile is None if there are too few samples: fewer than 59 for p95, or 299 for p99.
    """

    n: int
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True)
class SweepStep:
    """One step of a sweep: a time during which one cap was measured.

    Durations are in seconds, rates are per second, and shares are 0 to 1.
    """

    step: int
    cap: int
    purpose: Literal["ramp", "narrow", "reference", "drain", "confirm"]
    verdict: Literal["accepted", "rejected", "invalid", "undecided"]
    why: str
    """Why the cap was not accepted, or an empty text."""
    began: float
    ended: float
    warm_up: int
    calls: int
    attempts: int
    failures: dict[str, int]
    """Failed attempts by cause: `limited` (429), `overloaded` (503, 529), `server`, `timeout`,
    `connection`, `truncated`, `request`.
    """
    throughput: SweepEstimate | None
    goodput: SweepEstimate | None
    latency: SweepQuantiles
    ttft: SweepQuantiles
    tpot: SweepQuantiles
    in_flight: float
    gap_fraction: float
    """Share of the time in which calls waited although slots were free and no rate forbade them."""
    forbidden: float
    """Share of the time in which a rate or a cool-down forbade calls."""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SweepStep:
        """Returns the step that a decoded JSON object of the native module describes.

        Args:
            data: The object. Keys that are no attributes are ignored.

        """
        made = dict(data)
        made |= {name: _estimate(data[name]) for name in ("throughput", "goodput")}
        made |= {name: SweepQuantiles(**data[name]) for name in ("latency", "ttft", "tpot")}
        return cls(**{"why": "", **{name: value for name, value in made.items() if name in cls.__dataclass_fields__}})


@dataclass(frozen=True)
class SweepCheck:
    """A condition under which the measurement is valid, with the result of checking it."""

    name: str
    passed: bool | None
    """Whether the condition holds, or None if there is not enough data."""
    detail: str
    """What was found, in words."""


@dataclass(frozen=True)
class SweepSpend:
    """The calls, tokens, money and time that a sweep has used.

    `money` is in the currency of the prices, or None without prices. `seconds` is the elapsed time.
    """

    calls: int
    attempts: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    money: float | None
    seconds: float

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SweepSpend:
        """Returns the spend that a decoded JSON object of the native module describes.

        Args:
            data: The object. Keys that are no attributes are ignored.

        """
        return cls(**{name: value for name, value in data.items() if name in cls.__dataclass_fields__})


class SweepFigure:
    """A plot in SVG, which notebooks display.

    Attributes:
        svg: The text of the SVG.

    """

    def __init__(self, svg: str) -> None:
        """Creates a plot from the text of an SVG document."""
        self.svg = svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plot to an SVG file.

        Args:
            path: Path of the file, which is overwritten.

        Raises:
            OSError: If the file cannot be written.

        """
        Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_html_(self) -> str:
        return f'<div style="max-width: 60em">{self.svg}</div>'

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass(frozen=True, repr=False)
class SweepResult:
    """The result of a sweep: the cap, its confidence interval, what limits it, and measurements.

    A notebook displays the result and its plot. `json` returns everything as text, and `from_json`
    and `load` read it.

    Example:
        ```python no-run
        result = tidegate.SweepResult.load("out/sweep")
        print(result.cap, result.interval, result.binding)
        result.plot("tradeoff").save("tradeoff.svg")
        ```

    """

    cap: int | None
    """Smallest confirmed cap whose goodput is within the tolerance of the best stable one.

    None if there is no result; `because` then gives the reason.
    """
    interval: tuple[int, int] | None
    """Confidence interval of the cap."""
    open_above: bool
    """Whether the true upper end of the interval may be above the highest cap that was measured."""
    binding: Binding | None
    """What limits the cap."""
    because: str
    """Explanation of the result in one or two sentences."""
    confirmed: bool
    """Whether repeated steps at the cap and at a neighbouring one led to the same cap."""
    throughput: SweepEstimate | None
    """Completed calls per second at the cap."""
    goodput: SweepEstimate | None
    """Completed calls per second at the cap that met the objective."""
    rpm: SweepEstimate | None
    """Requests per minute that the provider accepts. None unless a limit on requests determines
    the cap, or a rate limit of unknown kind."""
    tpm: SweepEstimate | None
    """Tokens per minute that the provider accepts. None unless a limit on tokens determines the
    cap, or a rate limit of unknown kind."""
    notes: list[str]
    """Further remarks."""
    lines: str
    """Configuration of the target in TOML, or an empty text if the cap is not confirmed."""
    ended: str
    """Why the sweep ended.

    `found`, `interrupted`, `refused`, or the ceiling that was reached (`cost`, `tokens`, `time`,
    `calls`).
    """
    steps: list[SweepStep]
    """The steps in order of time."""
    checks: list[SweepCheck]
    """The conditions that were checked."""
    spend: SweepSpend
    """Calls, tokens, money and time of the sweep."""
    provenance: dict[str, Any]
    """What was measured, and with which versions. Contains no key and no prompt."""
    _json: str = field(repr=False)

    @classmethod
    def from_json(cls, text: str) -> SweepResult:
        """Returns the result from a JSON text that `json` returned.

        Args:
            text: The JSON text.

        Returns:
            The result.

        Raises:
            ValueError: If the text is not the JSON of a result.

        """
        _native.sweep_csv(text)  # Raises ValueError for any other text.
        data = json.loads(text)
        answer, ended, interval = data["answer"], data["ended"], data["answer"]["interval"]
        made = {name: value for name, value in answer.items() if name in cls.__dataclass_fields__}
        made |= {name: _estimate(answer[name]) for name in ("throughput", "goodput", "rpm", "tpm")}
        return cls(
            **{
                **made,
                "interval": None if interval is None else tuple(interval),
                "lines": data["lines"],
                "ended": ended.get("which", ended["how"]),
                "steps": [SweepStep.from_dict(step) for step in data["steps"]],
                "checks": [_check(check) for check in data["checks"]],
                "spend": SweepSpend.from_dict(data["spend"]),
                "provenance": data["provenance"],
                "_json": text,
            }
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SweepResult:
        """Reads a result from a file.

        Args:
            path: A `result.json`, or a directory that contains it.

        Returns:
            The result.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If the file is not the JSON of a result.

        """
        path = Path(path)
        return cls.from_json((path / "result.json" if path.is_dir() else path).read_text(encoding="utf-8"))

    def json(self) -> str:
        """Returns the whole result as a JSON text, which `from_json` reads.

        Durations are in seconds, rates per second (`rpm` and `tpm` per minute), and shares are 0 to
        1.
        """
        return self._json

    def csv(self) -> str:
        """Returns the steps as CSV, one row for each step."""
        return _native.sweep_csv(self._json)

    def html(self) -> str:
        """Returns the report as one HTML file that loads no other resources."""
        return _native.sweep_html(self._json)

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Writes `report.html`, `result.json` and `steps.csv` to a directory.

        Args:
            directory: The directory, which is created if it does not exist.

        Returns:
            Path of the report.

        Raises:
            OSError: If a file cannot be written.

        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        # Written as bytes, so that the line endings of the CSV are kept.
        for name, text in (("result.json", self.json()), ("steps.csv", self.csv()), ("report.html", self.html())):
            (directory / name).write_bytes(text.encode())
        return directory / "report.html"

    def plot(self, figure: FigureName = "throughput") -> SweepFigure:
        """Returns a plot, which notebooks display without matplotlib.

        Args:
            figure: `throughput`: throughput and goodput by cap. `around`: throughput and goodput at
                caps near the resulting one. `tradeoff`: latency by throughput. `ttft` or `tpot`:
                these latencies by cap. `calls`: outcomes of calls by cap. `held`: by cap, the mean
                share of the slots in use, and the share of time in which calls waited although
                slots were free. `timeline`: numbers of calls in flight and in the queue over time.
                Default: `throughput`.

        Returns:
            The plot.

        Raises:
            ValueError: If there is no such plot.

        """
        return SweepFigure(_native.sweep_figure(self._json, figure))

    def to_pandas(self) -> Any:
        """Returns the steps as a `pandas.DataFrame` with the columns of `csv`.

        Raises:
            ImportError: If pandas is not installed.

        """
        try:
            import pandas as pd  # noqa: PLC0415 - an optional dependency
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas, or use csv()") from error
        return pd.read_csv(io.StringIO(self.csv()), dtype={"why": str}).fillna({"why": ""})

    def _repr_html_(self) -> str:
        return _native.sweep_card(self._json)

    def __repr__(self) -> str:
        """Returns one line with the cap, its confidence interval and what limits it."""
        if self.cap is None:
            return f"<SweepResult: no answer: {self.because}>"
        low, high = self.interval or (self.cap, self.cap)
        interval = f"{low} or more" if self.open_above else f"{low} to {high}"
        sure = "confirmed" if self.confirmed else "not confirmed"
        return f"<SweepResult: cap {self.cap} ({interval}), {sure}; binds: {self.binding}>"


def _estimate(data: dict[str, float] | None) -> SweepEstimate | None:
    return None if data is None else SweepEstimate(**data)


def _check(data: dict[str, str]) -> SweepCheck:
    passed = {"yes": True, "no": False}.get(data["passed"])
    return SweepCheck(data["name"], passed, data["told"])
