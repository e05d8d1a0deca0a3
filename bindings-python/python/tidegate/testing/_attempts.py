"""Records of the calls and attempts that a fake target received."""

from __future__ import annotations

import dataclasses
import json
from typing import Any


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One attempt of a call that a fake target received.

    Times are in seconds since the target was installed, or since virtual time was installed if that
    was later.

    Attributes:
        call: Number of the call, from 0, in order of arrival.
        attempt: Number of the attempt within its call, from 1.
        method: HTTP method.
        url: URL without its query, which may contain a key.
        path: Path of the URL.
        model: Model that the request names, or None if it names none.
        stream: Whether the request asks for a stream.
        headers: Headers in order, with names in lower case. Values of credentials are `***`.
        body: Body as text.
        answer: What the target answered with: `reply`, `status`, `overloaded`, `refuse`, `capacity`
            or `rate` (429, because of these limits of the target), or `unmatched`.
        status: HTTP status, or None if no response was sent.
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
        """Returns the request body, decoded from JSON.

        Returns:
            The decoded value.

        Raises:
            ValueError: If the body is not JSON.

        """
        return json.loads(self.body)

    def __str__(self) -> str:
        """Returns one line with the call, the request, the answer and the times."""
        ended = "" if self.ended is None else f", ended at {self.ended:.3f} s"
        answer = self.answer if self.status is None else f"{self.answer} {self.status}"
        return (
            f"call {self.call}, attempt {self.attempt}: {self.method} {self.path} ({self.model}) "
            f"at {self.arrived:.3f} s: {answer}, {self.outcome}{ended}"
        )


@dataclasses.dataclass(frozen=True)
class Call:
    """One call that a fake target received, with its attempts.

    Attributes:
        number: Number of the call, from 0, in order of arrival.
        attempts: The attempts in order of arrival.

    """

    number: int
    attempts: tuple[Attempt, ...]

    @property
    def statuses(self) -> list[int | None]:
        """The HTTP status of each attempt in order. None for an attempt without a response."""
        return [attempt.status for attempt in self.attempts]


def parse_attempts(text: str) -> list[Attempt]:
    """Returns the attempts that a JSON text of the native module describes."""
    return [
        Attempt(**{**fields, "headers": [(name, value) for name, value in fields["headers"]]})
        for fields in json.loads(text)
    ]


def group_by_call(attempts: list[Attempt]) -> list[Call]:
    """Groups attempts by their call. The calls are in the order of their first attempts."""
    by_call: dict[int, list[Attempt]] = {}
    for attempt in attempts:
        by_call.setdefault(attempt.call, []).append(attempt)
    return [Call(number, tuple(of_call)) for number, of_call in by_call.items()]
