"""The OpenAI Agents SDK: one wrapped client for all agents, and tools with caps."""

import asyncio

from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled
from openai import AsyncOpenAI

import tidegate

gate = tidegate.Gate(tools={"tables": 2})
set_default_openai_client(gate.wrap(AsyncOpenAI()))
# Disables traces, which the SDK sends to OpenAI with a separate client.
set_tracing_disabled(True)


@function_tool
@gate.tool("tables")
async def high_water(port: str) -> str:
    """A tool of the agent: returns the times of high water at a port."""
    return f"At {port}: 05:12 and 17:38."


agent = Agent(name="Harbour master", instructions="Answer briefly.", model="gpt-4o-mini", tools=[high_water])
result = asyncio.run(Runner.run(agent, "When is high water at Dover?"))
print(result.final_output)
