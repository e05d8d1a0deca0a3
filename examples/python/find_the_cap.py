"""A sweep: measures the cap of a server, and prints the cap, its reason and the configuration."""

import os
import tempfile

import tidegate

# With ceilings, so that the sweep ends soon. The plan estimates the cost in advance.
plan = tidegate.sweep_plan(url=os.environ["OPENAI_BASE_URL"], model="gpt-4o-mini", max_calls=120, max_time=30)
print(f"up to {plan['calls']['most']:.0f} calls of {plan['mix']}")

found = tidegate.sweep(
    url=os.environ["OPENAI_BASE_URL"],
    model="gpt-4o-mini",
    output_tokens=16,
    max_cap=16,
    max_calls=120,
    max_time=30,
    progress=lambda told: told.step_ended and print(f"cap {told.step_ended.cap}: {told.step_ended.verdict}"),
)
print(found)
print(found.lines or found.because)
with tempfile.TemporaryDirectory() as folder:
    report = found.save(folder)
    print(
        f"{report.name}: {report.stat().st_size:,} bytes; in a notebook, `found` shows itself, and so does found.plot()"
    )
