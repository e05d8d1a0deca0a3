"""One process of the experiment `share-peers`: callers whose calls are limited together with other processes.

    python share_peers_process.py LIMITER LIMIT PER_MINUTE URL REDIS_URL CALLERS

`LIMITER` is `tidegate`, `tidegate, not shared`, `litellm` or `token-throttle`. `LIMIT` is what is limited: `requests`
or `tokens`. Makes one call without the limiter, because the first call imports most of the client. Prints a line when
it is ready, begins with the line that it reads, and makes calls until standard input is closed. Then prints as JSON
how many calls were served, how many the limiter refused, and how many ended with each error.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import openai

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    #: Makes one call, which raises `RefusedError` if the limiter has refused it.
    Call = Callable[[], Awaitable[None]]

#: Tokens of each prompt, and the maximum of each answer.
INPUT_TOKENS, MAX_OUTPUT_TOKENS = 100, 400
#: Time after which a refused call is tried again, in seconds.
PAUSE = 1.0
#: The name under which the processes share the limit. Each run has a Redis server of its own.
GROUP = "bench"
#: The names of the limits per minute, in Tidegate and in LiteLLM.
RATE_KEYS = {"requests": "rpm", "tokens": "tpm"}
MESSAGES: Any = [{"role": "user", "content": "x" * (4 * INPUT_TOKENS)}]


class RefusedError(Exception):
    """The limiter has refused a call, instead of letting it wait."""


def client_of(url: str) -> openai.AsyncOpenAI:
    """Returns a client that does not retry, because the calls that the provider gets are counted."""
    return openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0, timeout=600)


async def ask(client: openai.AsyncOpenAI) -> int:
    """Makes one call, and returns its tokens."""
    answer = await client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=MAX_OUTPUT_TOKENS)
    assert answer.usage is not None
    return answer.usage.total_tokens


def tidegate_call(limit: str, per_minute: int, url: str, redis_url: str, *, shares: bool) -> Call:
    """Returns a function that makes one call through a gate. It waits until the call is within the limit."""
    import tidegate  # noqa: PLC0415 - a process has only one of the limiters

    target = {"url": url, "cap": 1000, "wait": 600, "counting": "actual", "headers": "ignore", "metrics": "off"}
    target |= {RATE_KEYS[limit]: per_minute}
    share = {"store": redis_url, "name": GROUP} if shares else "off"
    client = tidegate.Gate(targets={"m": target}, share=share).wrap(client_of(url))

    async def call() -> None:
        await ask(client)

    return call


def litellm_call(limit: str, per_minute: int, url: str, redis_url: str) -> Call:
    """Returns a function that makes one call through LiteLLM's Router, which refuses calls beyond the limit."""
    import litellm  # noqa: PLC0415 - a process has only one of the limiters

    litellm.suppress_debug_info = True
    of_model = {"model": "openai/m", "api_base": url, "api_key": "k"}
    of_model |= {RATE_KEYS[limit]: per_minute}
    router = litellm.Router(
        # Processes count a deployment together if it has the same id.
        model_list=[{"model_name": "m", "litellm_params": of_model, "model_info": {"id": GROUP}}],
        redis_host=urlsplit(redis_url).hostname,
        redis_port=urlsplit(redis_url).port,
        optional_pre_call_checks=["enforce_model_rate_limits"],
        num_retries=0,
        # A deployment is not set aside because calls to it were refused.
        disable_cooldowns=True,
        timeout=600,
    )

    async def call() -> None:
        try:
            await router.acompletion(model="m", messages=MESSAGES, max_tokens=MAX_OUTPUT_TOKENS)
        except litellm.RateLimitError as error:
            raise RefusedError from error

    return call


def token_throttle_call(limit: str, per_minute: int, url: str, redis_url: str) -> Call:
    """Returns a function that makes one call after token-throttle has reserved it, and returns what was not used."""
    import redis.asyncio  # noqa: PLC0415 - a process has only one of the limiters
    import token_throttle  # noqa: PLC0415

    quota = token_throttle.Quota(metric=limit, limit=per_minute, per_seconds=60)
    limiter = token_throttle.RateLimiter(
        token_throttle.PerModelConfig(quotas=token_throttle.UsageQuotas([quota])),
        backend=token_throttle.RedisBackendBuilder(redis.asyncio.from_url(redis_url), key_prefix=GROUP),
    )
    most = {"requests": 1, "tokens": INPUT_TOKENS + MAX_OUTPUT_TOKENS}[limit]
    client = client_of(url)

    async def call() -> None:
        async with limiter.reserve({limit: most}, model="m") as reserved:
            tokens = await ask(client)
            reserved.set_actual_usage({limit: tokens if limit == "tokens" else 1})

    return call


async def call_directly(limiter: str, url: str) -> None:
    """Makes one call without the limiter."""
    if limiter == "litellm":
        import litellm  # noqa: PLC0415 - a process has only one of the limiters

        await litellm.acompletion(model="openai/m", api_base=url, api_key="k", messages=MESSAGES)
    else:
        await ask(client_of(url))


def call_of(limiter: str, limit: str, per_minute: int, url: str, redis_url: str) -> Call:
    """Returns the function that makes one call with a limiter."""
    if limiter == "litellm":
        return litellm_call(limit, per_minute, url, redis_url)
    if limiter == "token-throttle":
        return token_throttle_call(limit, per_minute, url, redis_url)
    return tidegate_call(limit, per_minute, url, redis_url, shares=limiter == "tidegate")


async def main() -> None:
    """Makes calls until standard input is closed, and prints how they ended."""
    limiter, limit, per_minute, url, redis_url, callers = sys.argv[1:]
    call = call_of(limiter, limit, int(per_minute), url, redis_url)
    loop = asyncio.get_running_loop()
    counts = {"served": 0, "refused": 0}
    errors: Counter[str] = Counter()

    async def make_calls() -> None:
        while True:
            try:
                await call()
                counts["served"] += 1
            except RefusedError:
                counts["refused"] += 1
                await asyncio.sleep(PAUSE)
            except Exception as error:  # noqa: BLE001 - whatever a limiter raises is part of the result
                errors[f"{type(error).__name__}: {error}"[:200]] += 1
                await asyncio.sleep(PAUSE)

    await call_directly(limiter, url)
    print("ready", flush=True)  # noqa: T201
    await loop.run_in_executor(None, sys.stdin.readline)
    tasks = [asyncio.create_task(make_calls()) for _ in range(int(callers))]
    await loop.run_in_executor(None, sys.stdin.read)
    for task in tasks:
        task.cancel()
    print(json.dumps({**counts, "errors": errors}), flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
