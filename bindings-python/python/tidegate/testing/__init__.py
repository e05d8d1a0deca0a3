"""What your own tests need: a fake target to script, and virtual time.

```python
from tidegate.testing import FakeTarget, ok, rate_limited, run

def test_my_agent_waits_as_it_was_asked_to():
    target = FakeTarget(rate_limited(retry_after=90), ok("done"))
    with target.installed():
        assert run(my_agent()) == "done"  # 90 s of virtual time, a few milliseconds of yours
    assert [attempt.status for attempt in target.attempts] == [429, 200]
```

While a target is installed, every gate of the process sends to it instead of the network, with the real queueing,
retries, cool-downs and cancelling above. With virtual time, time passes only while everything waits, in the same order
each run.

With pytest: the fixtures `tidegate_target` (a target, installed) and `tidegate_clock` (virtual time), and the marker
`@pytest.mark.tidegate(virtual_time=True)`, for plain tests and for those of pytest-asyncio and anyio.
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
