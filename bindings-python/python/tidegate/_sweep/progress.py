"""The progress of a running sweep."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from tidegate._sweep.result import SweepSpend, SweepStep


@dataclass(frozen=True)
class SweepProgress:
    """The state of a running sweep, which `tidegate.sweep` reports several times a second."""

    state: Literal["preflight", "holding", "resting", "ending"]
    cap: int | None
    """Cap of the current step, or None unless `state` is `holding`."""
    step: int | None
    """Number of the current step, or None unless `state` is `holding`."""
    purpose: str | None
    """Purpose of the current step, or None unless `state` is `holding`."""
    accepted_cap: int | None
    """Highest cap accepted so far. None if no cap was accepted."""
    rejected_cap: int | None
    """Lowest cap rejected so far. None if no cap was rejected."""
    remaining_calls: tuple[int, int, int]
    """Number of calls that the sweep still needs: least, likely, most."""
    eta: float | None
    """Expected remaining seconds, or None until some calls have ended."""
    in_flight: int
    """Number of calls in flight now."""
    waiting: int
    """Number of calls that wait for a slot now."""
    spend: SweepSpend
    """Calls, tokens, money and time so far."""
    step_ended: SweepStep | None
    """The step that has just ended, reported once. None if no step has just ended."""

    @classmethod
    def from_json(cls, text: str) -> SweepProgress:
        """Returns the progress that a JSON text of the native module describes.

        Args:
            text: The JSON text.

        """
        data = json.loads(text)
        state, ended = data["state"], data["step_ended"]
        return cls(
            **{name: data[name] for name in ("eta", "in_flight", "waiting")},
            **{name: state.get(name) for name in ("cap", "step", "purpose")},
            state=state["state"],
            accepted_cap=data["good"],
            rejected_cap=data["bad"],
            remaining_calls=tuple(data["calls_to_come"]),
            spend=SweepSpend.from_dict(data["spend"]),
            step_ended=None if ended is None else SweepStep.from_dict(ended),
        )
