"""CPU usage of the client."""

from __future__ import annotations

import time


class Usage:
    """Measures the CPU time of this process and of its event loop's thread, per core."""

    def __init__(self) -> None:
        """Starts the measurement."""
        self.busiest = 0.0
        self._start = self._last = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), time.thread_time()

    def sample(self) -> None:
        """Takes a sample. Updates `busiest` if the last sample is more than 0.5 s old."""
        now = self._now()
        wall = now[0] - self._last[0]
        if wall > 0.5:
            self.busiest = max(self.busiest, (now[1] - self._last[1]) / wall)
        self._last = now

    @property
    def mean(self) -> float:
        """CPU time of the process from the start to the last sample, as a share of one core."""
        return self._share(1)

    @property
    def loop(self) -> float:
        """CPU time of the event loop's thread up to the last sample, as a share of one core."""
        return self._share(2)

    def _share(self, which: int) -> float:
        wall = self._last[0] - self._start[0]
        return (self._last[which] - self._start[which]) / wall if wall else 0.0

    def __str__(self) -> str:
        """Returns the share of the process and that of its busiest second, as text."""
        return f"{self.mean:.0%} of one core (busiest second {self.busiest:.0%})"
