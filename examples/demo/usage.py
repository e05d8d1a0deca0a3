"""CPU usage of the client."""

from __future__ import annotations

import time


class Usage:
    """CPU time of this process and of its event loop's thread, as shares of one core."""

    def __init__(self) -> None:
        """Starts the measurement."""
        self.busiest = 0.0
        self._start = self._last = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), time.thread_time()

    def sample(self) -> None:
        """Records the share since the last sample."""
        now = self._now()
        wall = now[0] - self._last[0]
        if wall > 0.5:
            self.busiest = max(self.busiest, (now[1] - self._last[1]) / wall)
        self._last = now

    @property
    def mean(self) -> float:
        """Share of the whole process since the start."""
        return self._share(1)

    @property
    def loop(self) -> float:
        """Share of the event loop's thread since the start."""
        return self._share(2)

    def _share(self, which: int) -> float:
        wall = self._last[0] - self._start[0]
        return (self._last[which] - self._start[which]) / wall if wall else 0.0

    def __str__(self) -> str:
        """Returns the shares as text."""
        return f"{self.mean:.0%} of one core (busiest second {self.busiest:.0%})"
