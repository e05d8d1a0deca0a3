"""What a sweep tells while it runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from tidegate._sweep.result import SweepSpend, SweepStep


@dataclass(frozen=True)
class SweepProgress:
    """How a sweep stands, several times a second."""

    state: Literal["preflight", "holding", "resting", "ending"]
    cap: int | None
    """The cap that is held; None unless `state` is `holding`."""
    step: int | None
    """The step's number, likewise."""
    purpose: str | None
    """Why the step is made, likewise."""
    good: int | None
    """The highest cap known to be good."""
    bad: int | None
    """The lowest known to be bad."""
    calls_to_come: tuple[int, int, int]
    """Calls that it may still take: least, likely, most."""
    eta: float | None
    """Seconds that it may still take; None until some calls have gone."""
    in_flight: int
    waiting: int
    spend: SweepSpend
    step_ended: SweepStep | None
    """The step that ended just now. Each is told once."""

    @classmethod
    def from_json(cls, text: str) -> SweepProgress:
        """Make one of its JSON."""
        told = json.loads(text)
        state, ended = told["state"], told["step_ended"]
        return cls(
            **{name: told[name] for name in ("good", "bad", "eta", "in_flight", "waiting")},
            **{name: state.get(name) for name in ("cap", "step", "purpose")},
            state=state["state"],
            calls_to_come=tuple(told["calls_to_come"]),
            spend=SweepSpend.from_dict(told["spend"]),
            step_ended=None if ended is None else SweepStep.from_dict(ended),
        )
