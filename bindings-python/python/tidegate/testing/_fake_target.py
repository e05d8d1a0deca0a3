"""A fake target that answers from a script."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from tidegate import _native
from tidegate.testing._answers import Answer, ok
from tidegate.testing._attempts import Attempt, Call, group_by_call, parse_attempts

if TYPE_CHECKING:
    from collections.abc import Iterator

_installed: list[FakeTarget] = []


class FakeTarget:
    """A replacement for the network that answers requests from a script, and records them.

    The answers have the format of the API that the request uses (OpenAI's chat completions,
    completions, Responses and embeddings, Anthropic's messages, Gemini's generateContent), so that
    the official SDKs parse them. Other requests are answered as chat completions, unless a route
    matches.

    Requests that a gate sends of its own accord use up no answer and are not recorded: a health
    probe of a pool gets status 200, and a request for metrics, models or token counts gets status
    404. A route whose `path` names theirs, such as `*/metrics`, answers them instead.

    Args:
        *answers: Answers to the next attempts in order of arrival. Each is given once, or as often
            as its `.times(n)` says.
        otherwise: Answer after the others are used up. With None, further requests fail as
            unmatched. Default: `ok()`.
        capacity: Maximum number of attempts in flight. Another attempt gets status 429 and uses up
            no answer. Default: no limit.
        rate: Maximum number of attempts per minute. Another attempt gets status 429 with a
            Retry-After. Default: no limit.
        retry_after: Seconds in the Retry-After header of attempts above `capacity`. Default: no
            header.

    Raises:
        ValueError: If a time is negative or longer than a year, or a status or a header is
            invalid.

    Example:
        ```python
        from tidegate.testing import FakeTarget, ok, overloaded

        target = FakeTarget(overloaded(), ok("done"), capacity=2)
        with target.installed():
            answer = await client.responses.create(model="gpt-4o", input="Say hello.")
        assert [attempt.status for attempt in target.attempts] == [503, 200]
        ```

    """

    def __init__(
        self,
        *answers: Answer,
        otherwise: Answer | None = ok(),  # noqa: B008 - frozen
        capacity: int | None = None,
        rate: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        """Creates the target without installing it. For the arguments, see the class."""
        self._routes: list[dict[str, Any]] = []
        self._default_route = _route(answers, otherwise, capacity, rate, retry_after)
        self._native = _native.FakeTarget(_script([self._default_route]))

    def script(
        self,
        *answers: Answer,
        otherwise: Answer | None = ok(),  # noqa: B008 - frozen
        capacity: int | None = None,
        rate: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        """Replaces the answers to requests that no route matches, and restarts all scripts.

        Args:
            *answers: As for the class.
            otherwise: As for the class.
            capacity: As for the class.
            rate: As for the class.
            retry_after: As for the class.

        Raises:
            ValueError: If a time is negative or longer than a year, or a status or a header is
                invalid.

        """
        self._replace(self._routes, _route(answers, otherwise, capacity, rate, retry_after))

    def route(  # noqa: PLR0913 - each keyword has a default
        self,
        *answers: Answer,
        host: str | None = None,
        path: str | None = None,
        model: str | None = None,
        contains: str | None = None,
        otherwise: Answer | None = ok(),  # noqa: B008 - frozen
        capacity: int | None = None,
        rate: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        """Adds a route: answers to the requests that match.

        The first matching route answers a request.

        Adding a route restarts the scripts of all routes. Capacity and rate apply to each route
        separately. In patterns, `*` matches any text.

        Args:
            *answers: As for the class.
            host: Pattern of the URL's host. Default: any.
            path: Pattern of the URL's path. Requests that a gate sends of its own accord only match
                a pattern that does not end in `*`. Default: any.
            model: Pattern of the model that the request names. Default: any, or none.
            contains: Text in the body of the request. Default: any.
            otherwise: As for the class.
            capacity: As for the class.
            rate: As for the class.
            retry_after: As for the class.

        Raises:
            ValueError: If a time is negative or longer than a year, or a status or a header is
                invalid.

        Example:
            ```python
            from tidegate.testing import FakeTarget, ok, status

            target = FakeTarget(ok())
            target.route(status(500), model="small*")
            ```

        """
        matches = {"host": host, "path": path, "model": model, "contains": contains}
        route = {**matches, **_route(answers, otherwise, capacity, rate, retry_after)}
        self._replace([*self._routes, route], self._default_route)

    @contextlib.contextmanager
    def installed(self) -> Iterator[FakeTarget]:
        """Replaces the network with the target for every gate of the process, in a `with` block.

        Inside the block, every gate starts again from its configuration. After the block, each gate
        has its earlier state, so that tests do not affect each other. Transports of clients are
        replaced too. The target applies to the whole process, so do not run such tests concurrently
        in threads. Requests that do not go through a gate still use the network: those of clients
        that are not wrapped, and of gates in mode `off`.

        Yields:
            The target.

        Raises:
            AssertionError: At the end of the block, if a request matched no answer. The request
                itself fails at once with `tidegate.RequestError`.

        """
        self._native.install()
        _installed.append(self)
        try:
            yield self
        finally:
            _installed.remove(self)
            self._native.uninstall()
        self.assert_all_matched()

    @property
    def attempts(self) -> list[Attempt]:
        """The attempts so far, in order of arrival."""
        return parse_attempts(self._native.attempts())

    @property
    def calls(self) -> list[Call]:
        """The calls so far with their attempts, in order of arrival."""
        return group_by_call(self.attempts)

    @property
    def cancelled(self) -> list[Attempt]:
        """The attempts that the caller cancelled before the end of their answers."""
        return [attempt for attempt in self.attempts if attempt.outcome == "cancelled"]

    @property
    def in_flight(self) -> int:
        """Number of attempts that are in flight now."""
        return self._native.in_flight

    @property
    def max_in_flight(self) -> int:
        """Maximum number of attempts that were in flight at once, including rejected ones."""
        return self._native.max_in_flight

    @property
    def unmatched(self) -> list[str]:
        """One line for each request that matched no answer, with the reason."""
        return self._native.unmatched

    def trace(self) -> list[str]:
        """Returns one line for each attempt, in order of arrival.

        Two runs of a test on virtual time have equal traces.
        """
        return [str(attempt) for attempt in self.attempts]

    def assert_no_call_in_flight(self) -> None:
        """Checks that every attempt was answered to its end or cancelled.

        Raises:
            AssertionError: If an attempt is in flight, for example a stream that was not closed.

        """
        open_ones = [f"  {attempt}" for attempt in self.attempts if attempt.outcome == "in_flight"]
        if open_ones:
            raise AssertionError(f"{len(open_ones)} attempts are in flight:\n" + "\n".join(open_ones))

    def assert_all_matched(self) -> None:
        """Checks that every request matched an answer.

        Raises:
            AssertionError: If a request matched no answer.

        """
        unmatched = [f"  {request}" for request in self.unmatched]
        if unmatched:
            raise AssertionError("the fake target has no answer for:\n" + "\n".join(unmatched))

    def __repr__(self) -> str:
        """Returns the class, the number of attempts so far, and the number in flight."""
        return f"<tidegate.testing.FakeTarget attempts={len(self.attempts)} in_flight={self.in_flight}>"

    def _replace(self, routes: list[dict[str, Any]], default_route: dict[str, Any]) -> None:
        """Replaces all routes, or none of them if one is invalid."""
        self._native.set_script(_script([*routes, default_route]))
        self._routes, self._default_route = routes, default_route


def reset_start_times() -> None:
    """Sets the start time of all installed targets to now.

    Called when a virtual clock is installed. The times of later attempts then count from 0 on that
    clock.
    """
    for target in _installed:
        target._native.reset_start_time()  # noqa: SLF001 - one package


def _script(routes: list[dict[str, Any]]) -> str:
    """Returns the JSON script with these routes."""
    return json.dumps({"routes": routes}, allow_nan=False)


def _route(
    answers: tuple[Answer, ...],
    otherwise: Answer | None,
    capacity: int | None,
    rate: int | None,
    retry_after: float | None,
) -> dict[str, Any]:
    """Returns one route of the JSON script that matches every request.

    `otherwise` is the answer when `answers` are used up; None if there is none.
    """
    return {
        "answers": [answer.script() for answer in answers],
        "otherwise": None if otherwise is None else otherwise.script(),
        "capacity": capacity,
        "rate": rate,
        "retry_after": retry_after,
    }
