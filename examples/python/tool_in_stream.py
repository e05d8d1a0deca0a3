"""A tool in the middle of a stream: the model slot is handed back meanwhile, and whoever waits can be asked why."""

import asyncio

from openai import AsyncOpenAI

import tidegate

gate = tidegate.Gate(defaults={"cap": 1}, tools={"search": 4})
client = gate.wrap(AsyncOpenAI())


async def ask(name: str) -> str:
    """Read one answer as it comes; look something up as soon as it has begun."""
    with tidegate.context(call=name):
        stream = await client.chat.completions.create(
            model="gpt-4o-mini",
            messages=[{"role": "user", "content": "What is a tide gate?"}],
            max_completion_tokens=16,
            stream=True,
        )
        text = ""
        async for chunk in stream:
            if not text and name == "first":
                await look_up()
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
        return text


async def look_up() -> None:
    """Use a tool while another call waits for the one slot, which this task holds."""
    other = asyncio.ensure_future(ask("second"))
    await asyncio.sleep(0.05)
    print(gate.explain("second"))
    async with gate.tool("search", yield_slot=True):
        print(f"the second answer came while the first was open: {await other!r}")


print(f"and the first is whole: {asyncio.run(ask('first'))!r}")
