"""DSPy with LiteLLM: one line sends all its HTTP requests through the gate.

`engine="litellm"` is necessary from DSPy 3.4, whose own HTTP client bypasses the gate.
`num_retries=0` switches off the retries above the gate.
"""

import dspy

import tidegate

gate = tidegate.Gate()
gate.litellm()

model = dspy.LM("openai/gpt-4o-mini", engine="litellm", num_retries=0, cache=False)
print(model("What is a storm surge?")[0])

answers = dspy.Parallel(num_threads=4)([(model, {"prompt": f"Name {count} tides."}) for count in range(1, 9)])
print(f"{len(answers)} answers in parallel, {len(gate.calls())} calls through the gate")
