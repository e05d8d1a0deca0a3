"""How busy the client itself is."""

from __future__ import annotations

import time


class Usage:
    """CPU time of this process, all threads, as shares of one core. The event loop is one thread of it."""

    def __init__(self) -> None:
        """Start counting."""
        self.busiest = 0.0
        self._start = self._last = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), time.thread_time()

    def sample(self) -> None:
        """Note the share since the last look."""
        now = self._now()
        wall = now[0] - self._last[0]
        if wall > 0.5:
            self.busiest = max(self.busiest, (now[1] - self._last[1]) / wall)
        self._last = now

    @property
    def mean(self) -> float:
        """The whole process's share since the start."""
        return self._share(1)

    @property
    def loop(self) -> float:
        """The event loop's thread's share since the start."""
        return self._share(2)

    def _share(self, which: int) -> float:
        wall = self._last[0] - self._start[0]
        return (self._last[which] - self._start[which]) / wall if wall else 0.0

    def __str__(self) -> str:
        """Say it."""
        return f"{self.mean:.0%} of one core (busiest second {self.busiest:.0%})"
