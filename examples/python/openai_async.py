"""A hundred calls at once with eight slots, for two tenants."""

import asyncio

from openai import AsyncOpenAI

import tidegate

gate = tidegate.Gate(defaults={"cap": 8}, tenants={"app": {"weight": 4}, "nightly": {"cap": 2}})
client = gate.wrap(AsyncOpenAI())


async def ask(tenant: str, number: int) -> str:
    """Makes one call for a tenant, with a deadline of a minute that includes the wait."""
    with tidegate.context(tenant=tenant, deadline=60):
        completion = await client.chat.completions.create(
            model="gpt-4o-mini",
            messages=[{"role": "user", "content": f"Question {number} of {tenant}"}],
            max_completion_tokens=4,
        )
    return completion.choices[0].message.content or ""


async def main() -> None:
    """Makes a hundred calls at once for two tenants, and prints the results."""
    calls = [ask("app", n) for n in range(80)] + [ask("nightly", n) for n in range(20)]
    answers = await asyncio.gather(*calls)
    [target] = gate.snapshot()["targets"].values()
    print(f"{len(answers)} answers, at most {target['peak_in_flight']} calls in flight")
    for name in ("app", "nightly"):
        seen = target["tenants"][name]
        print(f"{name}: {seen['admitted']} calls, at most {seen['peak_in_flight']} in flight")


asyncio.run(main())
