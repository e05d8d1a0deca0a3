"""Records of the calls and attempts that a fake target received."""

from __future__ import annotations

import dataclasses
import json
from typing import Any


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One attempt of a call.

    Times are in seconds since the installation, or since the start of virtual time.

    Attributes:
        call: Number of the call, from 0, in order of arrival.
        attempt: Number of the attempt within its call, from 1.
        method: HTTP method.
        url: URL without its query, which may contain a key.
        path: Path of the URL.
        model: Model that the request names, or None.
        stream: Whether the request asks for a stream.
        headers: Headers in order, with names in lower case. Values of credentials are `***`.
        body: Body as text.
        answer: What the target answered with: `reply`, `status`, `overloaded`, `refuse`, `capacity`
            or `rate` (429, because of these limits of the target), or `unmatched`.
        status: HTTP status, or None if there was none.
        outcome: `answered` (to the end of the script), `cancelled` (by the caller) or `in_flight`.
        arrived: Time of arrival.
        ended: Time of the end, or None while the attempt is in flight.

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
        """Returns the body, decoded from JSON.

        Raises:
            ValueError: If the body is not JSON.

        """
        return json.loads(self.body)

    def __str__(self) -> str:
        """Returns the attempt as one line of text."""
        ended = "" if self.ended is None else f", ended at {self.ended:.3f} s"
        said = self.answer if self.status is None else f"{self.answer} {self.status}"
        return (
            f"call {self.call}, attempt {self.attempt}: {self.method} {self.path} ({self.model}) "
            f"at {self.arrived:.3f} s: {said}, {self.outcome}{ended}"
        )


@dataclasses.dataclass(frozen=True)
class Call:
    """One call with its attempts.

    Attributes:
        number: Number of the call, from 0, in order of arrival.
        attempts: The attempts in order of arrival.

    """

    number: int
    attempts: tuple[Attempt, ...]

    @property
    def statuses(self) -> list[int | None]:
        """The status of each attempt, or None for an attempt without a status."""
        return [attempt.status for attempt in self.attempts]


def parse_attempts(said: str) -> list[Attempt]:
    """Returns the attempts in a JSON text of the native module."""
    return [
        Attempt(**{**fields, "headers": [(name, value) for name, value in fields["headers"]]})
        for fields in json.loads(said)
    ]


def group_by_call(attempts: list[Attempt]) -> list[Call]:
    """Returns the calls to which the attempts belong."""
    together: dict[int, list[Attempt]] = {}
    for attempt in attempts:
        together.setdefault(attempt.call, []).append(attempt)
    return [Call(number, tuple(those)) for number, those in together.items()]
