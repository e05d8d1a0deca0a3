"""Event loops that tests run on."""

from __future__ import annotations

import asyncio
from typing import Any


class LoopWithoutReaders(asyncio.SelectorEventLoop):
    """A loop that cannot watch descriptors, as the default loop of Windows."""

    def add_reader(self, *_: Any) -> None:
        raise NotImplementedError
