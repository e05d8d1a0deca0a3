"""smolagents: an agent whose model has a wrapped client.

`retry=False` switches off the model's own retries of 429 responses, which begin a minute later.
"""

from openai import OpenAI
from smolagents import OpenAIModel, ToolCallingAgent, tool

import tidegate

gate = tidegate.Gate()
model = OpenAIModel("gpt-4o-mini", client=gate.wrap(OpenAI()), retry=False, max_tokens=100)


@tool
def depth(place: str) -> float:
    """Returns the depth of the water in metres.

    Args:
        place: The name of the place.

    """
    return 2.5 if place == "harbour" else 40.0


agent = ToolCallingAgent(tools=[depth], model=model, max_steps=2)
print(model([{"role": "user", "content": "What is a shoal?"}]).content)
print(agent.run("How deep is the harbour?"))
