"""What came of a sweep."""

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
    """A figure, and its interval."""

    value: float
    low: float
    high: float


class SweepQuantiles(NamedTuple):
    """Quantiles in seconds, each only where there are enough samples: 59 for a p95, 299 for a p99."""

    n: int
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True)
class SweepStep:
    """One step: a cap that was held for a while. Durations are seconds, rates a second, shares 0 to 1."""

    step: int
    cap: int
    purpose: Literal["ramp", "narrow", "reference", "drain", "confirm"]
    verdict: Literal["accepted", "rejected", "invalid", "undecided"]
    why: str
    """Why, where it was not accepted."""
    began: float
    ended: float
    warm_up: int
    calls: int
    attempts: int
    failures: dict[str, int]
    """Attempts that failed, by cause: `limited` (429), `overloaded` (503, 529), `server`, `timeout`, `connection`,
    `truncated`, `request`."""
    throughput: SweepEstimate | None
    goodput: SweepEstimate | None
    latency: SweepQuantiles
    ttft: SweepQuantiles
    tpot: SweepQuantiles
    in_flight: float
    gap_fraction: float
    """The share of its time in which calls waited while slots were free and nothing forbade them."""
    forbidden: float
    """The share of its time in which a rate or a cool-down forbade calls."""

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> SweepStep:
        """Make one of its JSON."""
        made = dict(told)
        made |= {name: _estimate(told[name]) for name in ("throughput", "goodput")}
        made |= {name: SweepQuantiles(**told[name]) for name in ("latency", "ttft", "tpot")}
        return cls(**{"why": "", **{name: value for name, value in made.items() if name in cls.__dataclass_fields__}})


@dataclass(frozen=True)
class SweepCheck:
    """Something that must hold for the measurement to mean what it says."""

    name: str
    passed: bool | None
    """None: there was too little to say."""
    told: str


@dataclass(frozen=True)
class SweepSpend:
    """What a sweep took."""

    calls: int
    attempts: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    money: float | None
    seconds: float

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> SweepSpend:
        """Make one of its JSON."""
        return cls(**{name: value for name, value in told.items() if name in cls.__dataclass_fields__})


class SweepFigure:
    """A plot. A notebook shows it; `svg` is its text."""

    def __init__(self, svg: str) -> None:
        """Keep it."""
        self.svg = svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as an SVG file."""
        Path(path).write_text(self.svg, encoding="utf-8")

    def _repr_html_(self) -> str:
        return f'<div style="max-width: 60em">{self.svg}</div>'

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass(frozen=True, repr=False)
class SweepResult:
    """What came of a sweep: this cap, this sure, because of this limit, paste these lines.

    A notebook shows the answer and its plot. `json()` is all of it, and `load` reads that back.
    """

    cap: int | None
    """The smallest confirmed cap whose goodput is within the tolerance of the best stable one. None: nothing can be
    said, and `because` says why."""
    interval: tuple[int, int] | None
    """The interval on it."""
    open_above: bool
    """Whether the interval's upper end is only as far as was looked."""
    binding: Binding | None
    """What binds."""
    because: str
    """Why, in a sentence or two."""
    confirmed: bool
    """Whether it was accepted again, in turns with what is above it."""
    throughput: SweepEstimate | None
    """Calls a second that completed at the answer."""
    goodput: SweepEstimate | None
    """Of these, those that met the objective."""
    rpm: SweepEstimate | None
    """Where a rate binds: requests a minute that are taken."""
    tpm: SweepEstimate | None
    """Where a rate binds: tokens a minute that are taken."""
    notes: list[str]
    """What to know besides."""
    lines: str
    """TOML to paste into a configuration; empty where there is no answer."""
    ended: str
    """`found`, `interrupted`, `refused`, or the ceiling: `cost`, `tokens`, `time`, `calls`."""
    steps: list[SweepStep]
    """Each cap that was held, in the order of time."""
    checks: list[SweepCheck]
    """What was checked of the measurement itself."""
    spend: SweepSpend
    """What it took."""
    provenance: dict[str, Any]
    """What was measured, with what. No key and no prompt is in it."""
    _json: str = field(repr=False)

    @classmethod
    def from_json(cls, text: str) -> SweepResult:
        """Make one of the JSON of `json()`.

        Raises:
            ValueError: for what is none.

        """
        _native.sweep_csv(text)  # Whether it is one.
        told = json.loads(text)
        answer, ended, interval = told["answer"], told["ended"], told["answer"]["interval"]
        made = {name: value for name, value in answer.items() if name in cls.__dataclass_fields__}
        made |= {name: _estimate(answer[name]) for name in ("throughput", "goodput", "rpm", "tpm")}
        return cls(
            **{
                **made,
                "interval": None if interval is None else tuple(interval),
                "lines": told["lines"],
                "ended": ended.get("which", ended["how"]),
                "steps": [SweepStep.from_dict(step) for step in told["steps"]],
                "checks": [_check(check) for check in told["checks"]],
                "spend": SweepSpend.from_dict(told["spend"]),
                "provenance": told["provenance"],
                "_json": text,
            }
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SweepResult:
        """Read a `result.json`, or the one in a directory."""
        path = Path(path)
        return cls.from_json((path / "result.json" if path.is_dir() else path).read_text(encoding="utf-8"))

    def json(self) -> str:
        """Return all of it as JSON: durations in seconds, rates a second (`rpm`, `tpm`: a minute), shares 0 to 1."""
        return self._json

    def csv(self) -> str:
        """Return the steps as CSV."""
        return _native.sweep_csv(self._json)

    def html(self) -> str:
        """Return the whole report: one HTML file that asks for nothing else."""
        return _native.sweep_html(self._json)

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write `report.html`, `result.json` and `steps.csv`; return the path of the report."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        # Bytes: the ends of CSV's lines stay what they are.
        for name, text in (("result.json", self.json()), ("steps.csv", self.csv()), ("report.html", self.html())):
            (directory / name).write_bytes(text.encode())
        return directory / "report.html"

    def plot(self, figure: FigureName = "throughput") -> SweepFigure:
        """Return a figure; a notebook shows it, without matplotlib.

        Args:
            figure: `throughput` and goodput against the cap; the same `around` the answer; `tradeoff`: latency against
                throughput; `ttft`; `tpot`; `calls`: what became of them; `held`: slots in flight and gap fraction;
                `timeline`: in flight and queue over time.

        Raises:
            ValueError: for another name.

        """
        return SweepFigure(_native.sweep_figure(self._json, figure))

    def to_pandas(self) -> Any:
        """Return the steps as a `pandas.DataFrame`, one a row, with the columns of `csv()`.

        Raises:
            ImportError: where pandas is not installed.

        """
        try:
            import pandas as pd  # noqa: PLC0415 - only who asks for it needs it
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas. csv() is the same without it") from error
        return pd.read_csv(io.StringIO(self.csv()), dtype={"why": str}).fillna({"why": ""})

    def _repr_html_(self) -> str:
        return _native.sweep_card(self._json)

    def __repr__(self) -> str:
        """Say the answer."""
        if self.cap is None:
            return f"<SweepResult: no answer: {self.because}>"
        low, high = self.interval or (self.cap, self.cap)
        interval = f"{low} or more" if self.open_above else f"{low} to {high}"
        sure = "confirmed" if self.confirmed else "not confirmed"
        return f"<SweepResult: cap {self.cap} ({interval}), {sure}; binds: {self.binding}>"


def _estimate(told: dict[str, float] | None) -> SweepEstimate | None:
    return None if told is None else SweepEstimate(**told)


def _check(told: dict[str, str]) -> SweepCheck:
    passed = {"yes": True, "no": False}.get(told["passed"])
    return SweepCheck(told["name"], passed, told["told"])
