"""Tenants that share a model: with weights, with reserved slots, and with a token rate."""

import asyncio
from collections import Counter

from openai import AsyncOpenAI

import tidegate

gate = tidegate.Gate(
    defaults={"cap": 4},
    tenants={"gold": {"weight": 2}, "silver": {"weight": 1}, "support": {"floor": 0.25}, "trial": {"tpm": 600}},
)
client = gate.wrap(AsyncOpenAI())


async def ask(tenant: str, question: str, length: int = 24) -> None:
    """Makes one call for a tenant. `length` is the maximum number of output tokens."""
    with tidegate.context(tenant=tenant, call=tenant):
        messages = [{"role": "user", "content": question}]
        await client.chat.completions.create(model="gpt-4o-mini", messages=messages, max_completion_tokens=length)


async def main() -> None:
    """Overloads the model with the calls of two tenants, and makes calls for the two others."""
    crowd = asyncio.gather(*(ask(tenant, f"Question {n}") for n, tenant in enumerate(("gold", "silver") * 30)))
    await asyncio.sleep(0.05)
    await ask("support", "Does it work?")
    [target] = gate.snapshot()["targets"].values()
    print(f"support was served by its reserved slot, while {target['queue_depth']} calls of others waited")
    await crowd

    calls = [call for call in gate.calls() if call["tenant"] in {"gold", "silver"}]
    admitted = sorted(calls, key=lambda call: call["queued_at"] + (call["attempts"][-1]["admitted_at"] or 0))
    print(f"of the first 30 slots: {dict(Counter(call['tenant'] for call in admitted[:30]))}")

    await ask("trial", "All about tide gates", length=1_000)
    [target] = gate.snapshot()["targets"].values()
    print(f"trial has a debt of {target['tenants']['trial']['debt']} tokens, which delays only its own calls")


asyncio.run(main())
