"""An event loop for tests."""

from __future__ import annotations

import asyncio
from typing import Any


class LoopWithoutReaders(asyncio.SelectorEventLoop):
    """An event loop that cannot watch descriptors, like the default loop of Windows."""

    def add_reader(self, *_: Any) -> None:
        raise NotImplementedError
