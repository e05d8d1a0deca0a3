"""What a fake target saw. Times are seconds since it was installed, or since virtual time began."""

from __future__ import annotations

import dataclasses
import json
from typing import Any


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One try of a call, as it arrived.

    Attributes:
        call: which call it belongs to: 0 for the first that arrived.
        attempt: which of that call's attempts it is: 1 for the first.
        method: the method.
        url: the URL without its query, which may hold a key.
        path: the URL's path.
        model: the model, where the request names one.
        stream: whether it asks for a stream.
        headers: its headers in order, names in lower case; the values of credentials are `***`.
        body: its body, as text.
        answer: what it was answered with: `reply`, `status`, `overloaded`, `refuse`, `capacity` or `rate` (a 429, for
            there were too many), or `unmatched`.
        status: the status, where it came to one.
        outcome: `answered` (as scripted, to the end), `cancelled` (its caller gave it up) or `in_flight`.
        arrived: when it arrived.
        ended: when it ended; None while it is in flight.

    """

    call: int
    attempt: int
    method: str
    url: str
    path: str
    model: str | None
    stream: bool
    headers: list[tuple[str, str]]
    body: str
    answer: str
    status: int | None
    outcome: str
    arrived: float
    ended: float | None

    def json(self) -> Any:
        """Return the request's body, read as JSON."""
        return json.loads(self.body)

    def __str__(self) -> str:
        """Say it in one line."""
        ended = "" if self.ended is None else f", ended at {self.ended:.3f} s"
        said = self.answer if self.status is None else f"{self.answer} {self.status}"
        return (
            f"call {self.call}, attempt {self.attempt}: {self.method} {self.path} ({self.model}) "
            f"at {self.arrived:.3f} s: {said}, {self.outcome}{ended}"
        )


@dataclasses.dataclass(frozen=True)
class Call:
    """What was asked for once: one attempt or more.

    Attributes:
        number: 0 for the first that arrived.
        attempts: in the order of their arrival.

    """

    number: int
    attempts: tuple[Attempt, ...]

    @property
    def statuses(self) -> list[int | None]:
        """The status of each attempt; None where it came to none."""
        return [attempt.status for attempt in self.attempts]


def parse_attempts(said: str) -> list[Attempt]:
    """Read the native half's list."""
    return [
        Attempt(**{**fields, "headers": [(name, value) for name, value in fields["headers"]]})
        for fields in json.loads(said)
    ]


def group_by_call(attempts: list[Attempt]) -> list[Call]:
    """Put the attempts together that belong to one call."""
    together: dict[int, list[Attempt]] = {}
    for attempt in attempts:
        together.setdefault(attempt.call, []).append(attempt)
    return [Call(number, tuple(those)) for number, those in together.items()]
