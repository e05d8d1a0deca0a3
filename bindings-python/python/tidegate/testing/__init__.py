"""Test helpers: a fake target that answers from a script, and virtual time.

While a target is installed, every gate of the process sends to the target instead of the network.
The gates still queue, retry, cool down and cancel as they do in production. With virtual time,
sleeps and timeouts take no real time: the clock jumps ahead when all code waits, and events have
the same order in each run. With either, gates share no limits with other processes, whatever
`share` says.

For pytest, there are the fixtures `tidegate_target` (an installed target) and `tidegate_clock`
(virtual time), and the marker `@pytest.mark.tidegate(virtual_time=True)` for plain tests and for
tests of pytest-asyncio and anyio.

Example:
    ```python
    from tidegate.testing import FakeTarget, ok, rate_limited, run

    def test_agent_waits_for_the_retry_after():
        target = FakeTarget(rate_limited(retry_after=90), ok("done"))
        with target.installed():
            assert run(my_agent()) == "done"  # 90 s of virtual time, a few milliseconds of real time
        assert [attempt.status for attempt in target.attempts] == [429, 200]
    ```

"""

from tidegate.testing._answers import (
    Answer,
    ToolCall,
    break_off,
    error_event,
    ok,
    overloaded,
    rate_limited,
    refuse_connection,
    stall,
    status,
    stream,
    tool_call,
    truncate,
)
from tidegate.testing._attempts import Attempt, Call
from tidegate.testing._fake_target import FakeTarget
from tidegate.testing._virtual_clock import VirtualClock, run

__all__ = [
    "Answer",
    "Attempt",
    "Call",
    "FakeTarget",
    "ToolCall",
    "VirtualClock",
    "break_off",
    "error_event",
    "ok",
    "overloaded",
    "rate_limited",
    "refuse_connection",
    "run",
    "stall",
    "status",
    "stream",
    "tool_call",
    "truncate",
]
