"""Measures how many calls a real server serves at once, with one burst of short calls."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import openai
from load_plan import REAL_OUTPUT_TOKENS, REAL_PROMPT_TOKENS
from traffic import Call, max_concurrent, send

if TYPE_CHECKING:
    from server import Server

#: Number of calls in the burst, and the maximum that is measured.
BURST = 32


@dataclass(frozen=True)
class Capacity:
    """What a server serves: the number of calls at once, and the seconds that each of them takes."""

    slots: int
    seconds: float


async def measure(server: Server) -> Capacity:
    """Sends a burst of calls, and returns how many of them produced tokens at the same time.

    Calls beyond the slots of the server wait in its queue and get their first token after another
    call has ended. Ends the program with a message if no call succeeds.
    """
    client = openai.AsyncOpenAI(base_url=server.base_url, api_key=server.key("A"), max_retries=0)
    size = (REAL_PROMPT_TOKENS, REAL_OUTPUT_TOKENS)
    # The first call opens the connection and imports modules.
    await asyncio.gather(send(client, server, size, Call("A", 0.0), -2, time.perf_counter), return_exceptions=True)
    calls = [Call("A", time.perf_counter()) for _ in range(BURST)]
    sent = [send(client, server, size, call, -3 - n, time.perf_counter) for n, call in enumerate(calls)]
    errors = [error for error in await asyncio.gather(*sent, return_exceptions=True) if error]
    await client.close()
    served = [
        Call("A", call.first, ended=call.last)
        for call in calls
        if call.first is not None and call.last is not None and not call.failure
    ]
    if not served:
        raise SystemExit(f"no call to {server.base_url} succeeded: {errors[0] if errors else 'no tokens'}")
    seconds = sorted(call.ended - call.sent for call in served if call.ended is not None)
    return Capacity(max(1, max_concurrent(served)), max(0.05, seconds[len(seconds) // 2]))
