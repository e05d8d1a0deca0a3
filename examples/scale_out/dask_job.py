"""Dask: the workers of a cluster on this machine share the cap.

Workers on several machines share it over Redis: share="redis://host:6379".
"""

import asyncio
import os

import openai
from dask.distributed import Client, LocalCluster

import tidegate


def ask(questions: list[str]) -> list[str]:
    """Asks the model all questions at once. The gate decides how many calls are in flight."""
    gate = tidegate.Gate(targets={"gpt": {"models": "gpt-*", "cap": 4}}, share="local")

    async def ask_all() -> list[str]:
        async with gate.wrap(openai.AsyncOpenAI()) as client:
            asked = [
                client.chat.completions.create(
                    model="gpt-4o-mini",
                    messages=[{"role": "user", "content": question}],
                    extra_headers={"x-process": str(os.getpid())},
                )
                for question in questions
            ]
            return [answer.choices[0].message.content or "" for answer in await asyncio.gather(*asked)]

    return asyncio.run(ask_all())


if __name__ == "__main__":
    parts = [[f"Question {part}.{number}" for number in range(10)] for part in range(8)]
    with LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as dask:
        answers = dask.gather(dask.map(ask, parts))
    print(sum(len(part) for part in answers), "answers")
