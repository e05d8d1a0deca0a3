"""Tools with their own caps. A slow tool holds no model slot."""

import asyncio

import tidegate

gate = tidegate.Gate(tools={"db": 2, "search": {"cap": 1, "wait": "5s"}})


async def query(number: int) -> int:
    """Pretends to query a database, and holds a slot of the tool `db` meanwhile."""
    async with gate.tool("db"):
        await asyncio.sleep(0.01)
        return number


@gate.tool("search")
async def search(text: str) -> str:
    """Pretends to search for a text, within the cap of the tool `search`."""
    await asyncio.sleep(0.01)
    return f"results for {text}"


async def main() -> None:
    """Uses both tools concurrently."""
    rows, found = await asyncio.gather(asyncio.gather(*map(query, range(10))), search("tides"))
    peak = gate.snapshot()["tools"]["db"]["peak_in_flight"]
    print(f"{len(rows)} queries, at most {peak} at once; {found}")


asyncio.run(main())
