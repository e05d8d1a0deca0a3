"""Ray: the actors of a data pipeline, and further actors, share the cap.

Actors on several machines share it over Redis: share="redis://host:6379".
"""

import asyncio
import os

import openai
import ray

import tidegate


class Asker:
    """Asks the model the questions of a batch at once. The gate decides how many calls are in flight."""

    def __init__(self) -> None:
        """Creates the gate of this actor."""
        self.gate = tidegate.Gate(targets={"gpt": {"models": "gpt-*", "cap": 4}}, share="local")

    def __call__(self, batch: dict) -> dict:
        """Adds the answers to a batch."""
        batch["answer"] = asyncio.run(self.ask_all(list(batch["question"])))
        return batch

    async def ask_all(self, questions: list[str]) -> list[str]:
        """Returns the answers."""
        async with self.gate.wrap(openai.AsyncOpenAI()) as client:
            asked = [
                client.chat.completions.create(
                    model="gpt-4o-mini",
                    messages=[{"role": "user", "content": question}],
                    extra_headers={"x-process": str(os.getpid())},
                )
                for question in questions
            ]
            return [answer.choices[0].message.content or "" for answer in await asyncio.gather(*asked)]


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False)
    rows = ray.data.from_items([{"question": f"Question {number}"} for number in range(40)])
    actors = [ray.remote(Asker).options(num_cpus=0.5).remote() for _ in range(2)]
    asked = [actor.ask_all.remote([f"Question of an actor {number}" for number in range(20)]) for actor in actors]
    pipeline = rows.map_batches(Asker, compute=ray.data.ActorPoolStrategy(size=2), batch_size=10, num_cpus=0.5)
    answers = [row["answer"] for row in pipeline.take_all()]
    answers += [answer for part in ray.get(asked) for answer in part]
    print(len(answers), "answers")
