"""The gate learns a provider's rate limits from response headers. Its snapshot shows them."""

from openai import OpenAI

import tidegate

gate = tidegate.Gate()
client = gate.wrap(OpenAI())
for number in range(3):
    client.chat.completions.create(
        model="gpt-4o-mini",
        messages=[{"role": "user", "content": f"What is tide gate number {number}?"}],
        max_completion_tokens=8,
    )

[target] = gate.snapshot()["targets"].values()
for kind, budget in target["budgets"].items():
    every, level = f"{budget['window']:.0f} s", f"{budget['level']:,} of them may go at once"
    print(f"{kind}: {budget['limit']:,} every {every}, by {budget['source']}; {level}")
for call in gate.calls():
    told = f"input {call['estimated_input_tokens']}, output {call['estimated_output_tokens']}"
    print(f"expected {told}; was {call['input_tokens']} and {call['output_tokens']}")
