"""CrewAI with its own provider for OpenAI: its model is wrapped.

For a model that CrewAI calls with LiteLLM, write `gate.litellm()` instead. `max_retry_limit=0`
switches off the agent's retries. CrewAI repeats a call twice that still fails with 429 after the
gate's attempts, and this cannot be switched off.
"""

from crewai import LLM, Agent, Crew, Task

import tidegate

gate = tidegate.Gate()
model = gate.wrap(LLM("openai/gpt-4o-mini", max_tokens=64))

pilot = Agent(
    role="Harbour pilot",
    goal="Explain the sea in one sentence.",
    backstory="At sea for years.",
    llm=model,
    max_retry_limit=0,
)
task = Task(description="What is a storm surge?", expected_output="One sentence.", agent=pilot)
print(Crew(agents=[pilot], tasks=[task]).kickoff().raw)
print(f"{len(gate.calls())} calls went through the gate")
