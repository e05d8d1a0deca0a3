"""CPU usage of this process, which shows whether the client itself limits the demo."""

from __future__ import annotations

import time


class Usage:
    """A meter of the CPU time of this process and of its event loop's thread."""

    def __init__(self) -> None:
        """Starts the measurement."""
        self.busiest = 0.0
        self._start = self._last = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), time.thread_time()

    def sample(self) -> None:
        """Takes a sample of the CPU time, and updates `busiest`.

        `busiest` is the largest share of one core that the process used between two successive
        samples. Samples that are at most 0.5 s apart do not change it.
        """
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
        """CPU time of the event loop's thread from the start to the last sample, as a share.

        The share is 1 if the thread used one core all the time.
        """
        return self._share(2)

    def _share(self, which: int) -> float:
        wall = self._last[0] - self._start[0]
        return (self._last[which] - self._start[which]) / wall if wall else 0.0

    def __str__(self) -> str:
        """Returns the mean share of one core, and the share in the busiest second, as text."""
        return f"{self.mean:.0%} of one core (busiest second {self.busiest:.0%})"
