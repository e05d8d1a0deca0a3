"""The progress of a running sweep."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from tidegate._sweep.result import SweepSpend, SweepStep


@dataclass(frozen=True)
class SweepProgress:
    """The state of a running sweep. `tidegate.sweep` reports it several times a second."""

    state: Literal["preflight", "holding", "resting", "ending"]
    cap: int | None
    """Cap of the current step, or None unless `state` is `holding`."""
    step: int | None
    """Number of the current step, or None unless `state` is `holding`."""
    purpose: str | None
    """Purpose of the current step, or None unless `state` is `holding`."""
    good: int | None
    """Highest cap that was accepted, or None."""
    bad: int | None
    """Lowest cap that was rejected, or None."""
    calls_to_come: tuple[int, int, int]
    """Remaining calls: least, likely, most."""
    eta: float | None
    """Expected remaining seconds, or None until some calls have ended."""
    in_flight: int
    """Calls in flight."""
    waiting: int
    """Calls that wait for a slot."""
    spend: SweepSpend
    """Calls, tokens, money and time so far."""
    step_ended: SweepStep | None
    """The step that has just ended. Each step is reported once."""

    @classmethod
    def from_json(cls, text: str) -> SweepProgress:
        """Returns the progress in a JSON text.

        Args:
            text: The text.

        """
        data = json.loads(text)
        state, ended = data["state"], data["step_ended"]
        return cls(
            **{name: data[name] for name in ("good", "bad", "eta", "in_flight", "waiting")},
            **{name: state.get(name) for name in ("cap", "step", "purpose")},
            state=state["state"],
            calls_to_come=tuple(data["calls_to_come"]),
            spend=SweepSpend.from_dict(data["spend"]),
            step_ended=None if ended is None else SweepStep.from_dict(ended),
        )
