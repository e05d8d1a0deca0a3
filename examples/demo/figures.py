"""The five figures that the demo compares for each tenant.

The module has their values in the noisy-neighbour blog post, and computes those of the demo.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traffic import Phase


@dataclass(frozen=True)
class Row:
    """The figures of one tenant in one phase.

    Times are in seconds, or None if there is no sample. `ttft` is the time to first token. `decode`
    is the median over the calls of the mean time between two tokens. `peak` is the maximum number
    of concurrent calls.
    """

    median_ttft: float | None
    p99_ttft: float | None
    decode: float | None
    peak: int
    failures: int
    calls: int

    def json(self) -> dict[str, Any]:
        """Returns the figures as JSON data."""
        return asdict(self)


#: The figures of runs 2 and 3 of the noisy-neighbour blog post, by phase and tenant.
POST = {
    "off": {
        "A": Row(1.280, 33.200, 0.131, 126, 0, 240),
        "B": Row(5.514, 34.277, 0.267, 450, 0, 450),
        "C": Row(6.137, 32.444, 0.134, 73, 0, 120),
    },
    "caps": {
        "A": Row(0.304, 0.603, 0.068, 30, 1, 240),
        "B": Row(16.900, 30.536, 0.067, 40, 404, 450),
        "C": Row(0.207, 0.472, 0.068, 18, 0, 120),
    },
}


def quantile(values: list[float], q: float) -> float | None:
    """Returns the `q` quantile (0 to 1), interpolated linearly, or None if there are no values."""
    if not values:
        return None
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def rows(phase: Phase) -> dict[str, Row]:
    """Returns the figures of a phase by tenant.

    Calls without a first token are excluded from the times to first token (TTFT).
    """
    result = {}
    for name in sorted({call.tenant for call in phase.calls}):
        calls = [call for call in phase.calls if call.tenant == name]
        ttft = [call.ttft for call in calls if call.ttft is not None]
        decode = [call.decode for call in calls if call.decode is not None]
        result[name] = Row(
            median_ttft=quantile(ttft, 0.5),
            p99_ttft=quantile(ttft, 0.99),
            decode=quantile(decode, 0.5),
            peak=phase.peaks.get(name, 0),
            failures=sum(call.failure is not None for call in calls),
            calls=len(calls),
        )
    return result
