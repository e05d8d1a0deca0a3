"""The fake target."""

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
    """Answers from a script in place of the network, and remembers what it saw.

    Its answers have the shapes of the API that the request speaks (OpenAI's chat completions, completions, Responses
    and embeddings, Anthropic's messages, Gemini's generateContent), as the official SDKs parse them. What it does not
    know is answered as chat completions are, unless a route says otherwise.

    Args:
        *answers: given in turn, to whichever attempt comes next, each once or as often as its `.times(n)` says.
        otherwise: given once these are used up. With None, what then comes fails as unmatched. Default: `ok()`.
        capacity: the most attempts at once; one more is answered 429, and uses up no answer. Default: any number.
        rate: the most attempts a minute; one more is answered 429, saying when to come back. Default: any number.
        retry_after: seconds, the Retry-After of what `capacity` turns away. Default: none.

    Raises:
        ValueError: for a time that is negative or longer than a year.

    """

    def __init__(
        self,
        *answers: Answer,
        otherwise: Answer | None = ok(),  # noqa: B008 - frozen
        capacity: int | None = None,
        rate: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        """Write the script; nothing is installed yet."""
        self._routes: list[dict[str, Any]] = []
        self._default_route = _route(answers, otherwise, capacity, rate, retry_after)
        self._native = _native.FakeTarget(self._script())

    def script(
        self,
        *answers: Answer,
        otherwise: Answer | None = ok(),  # noqa: B008 - frozen
        capacity: int | None = None,
        rate: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        """Answer so from now on what no route takes; the arguments are those of the class. Every route begins anew."""
        self._default_route = _route(answers, otherwise, capacity, rate, retry_after)
        self._native.follow(self._script())

    def route(  # noqa: PLR0913 - keywords, each with a default
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
        """Answer these requests by a script of their own. The first route that takes a request answers it.

        Every route begins anew. A capacity or a rate of one route is apart from the others'.

        Args:
            *answers: as for the class; so are `otherwise`, `capacity`, `rate` and `retry_after`.
            host: the URL's host; here as below `*` is any run of characters. Default: any.
            path: the URL's path. Default: any.
            model: the model that the request names. Default: any, and none.
            contains: text that the request's body contains. Default: any.
            otherwise: see the class.
            capacity: see the class.
            rate: see the class.
            retry_after: see the class.

        """
        matches = {"host": host, "path": path, "model": model, "contains": contains}
        self._routes.append({**matches, **_route(answers, otherwise, capacity, rate, retry_after)})
        self._native.follow(self._script())

    @contextlib.contextmanager
    def installed(self) -> Iterator[FakeTarget]:
        """Put it in place of the network for every gate of the process, those that exist and those made inside.

        Gates start anew from their configuration inside, and are afterwards what they were before: what one test does
        to a gate that a module holds, no other test sees. It stands in for transports of clients' own too. It is
        process-wide: tests that run at once in threads of one process would share it. What does not go through a gate
        (a client that was never wrapped, a gate whose mode is `off`) is not held back.

        Raises:
            AssertionError: at the end, where a request came that nothing in the script takes; such a request itself
                fails at once, with `tidegate.RequestError`.

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
        """Every attempt so far, in the order of arrival."""
        return parse_attempts(self._native.attempts())

    @property
    def calls(self) -> list[Call]:
        """Every call so far, with its attempts, in the order of their first arrival."""
        return group_by_call(self.attempts)

    @property
    def cancelled(self) -> list[Attempt]:
        """The attempts that their caller gave up before they were answered to the end."""
        return [attempt for attempt in self.attempts if attempt.outcome == "cancelled"]

    @property
    def in_flight(self) -> int:
        """How many attempts are in flight now."""
        return self._native.in_flight

    @property
    def max_in_flight(self) -> int:
        """The most attempts that were in flight at once, those turned away included."""
        return self._native.max_in_flight

    @property
    def unmatched(self) -> list[str]:
        """The requests that nothing in the script takes, and why."""
        return self._native.unmatched

    def trace(self) -> list[str]:
        """Return a line for each attempt: two runs of one test on virtual time have equal traces."""
        return [str(attempt) for attempt in self.attempts]

    def assert_no_call_in_flight(self) -> None:
        """Fail where an attempt has neither been answered to its end nor been given up: a stream that nobody closed."""
        open_ones = [f"  {attempt}" for attempt in self.attempts if attempt.outcome == "in_flight"]
        if open_ones:
            raise AssertionError(f"{len(open_ones)} still in flight:\n" + "\n".join(open_ones))

    def assert_all_matched(self) -> None:
        """Fail where a request came that nothing in the script takes."""
        unmatched = [f"  {said}" for said in self.unmatched]
        if unmatched:
            raise AssertionError("the fake target has no answer for:\n" + "\n".join(unmatched))

    def __repr__(self) -> str:
        """Say how much it saw."""
        return f"<tidegate.testing.FakeTarget attempts={len(self.attempts)} in_flight={self.in_flight}>"

    def _script(self) -> str:
        return json.dumps({"routes": [*self._routes, self._default_route]}, allow_nan=False)


def reset_start_times() -> None:
    """Let the times of what is installed count from now."""
    for target in _installed:
        target._native.start()  # noqa: SLF001 - one package


def _route(
    answers: tuple[Answer, ...],
    otherwise: Answer | None,
    capacity: int | None,
    rate: int | None,
    retry_after: float | None,
) -> dict[str, Any]:
    return {
        "answers": [answer.script() for answer in answers],
        "otherwise": None if otherwise is None else otherwise.script(),
        "capacity": capacity,
        "rate": rate,
        "retry_after": retry_after,
    }
