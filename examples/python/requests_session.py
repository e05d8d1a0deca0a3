"""A session of requests whose calls go through the gate: a call, and a stream.

A call that the gate rejects gets an HTTP response instead of an exception.
"""

import os

import requests

import tidegate

gate = tidegate.Gate(defaults={"cap": 4})
session = requests.Session()
session.mount("https://", gate.requests_adapter())
session.mount("http://", gate.requests_adapter())
session.headers["authorization"] = f"Bearer {os.environ['OPENAI_API_KEY']}"

url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1") + "/chat/completions"
question = {"role": "user", "content": "When is high water?"}
body = {"model": "gpt-4o-mini", "messages": [question], "max_completion_tokens": 8}

response = session.post(url, json=body, timeout=600)
response.raise_for_status()
print(response.json()["choices"][0]["message"]["content"])

with session.post(url, json={**body, "stream": True}, stream=True, timeout=600) as response:
    response.raise_for_status()
    print(sum(line.startswith(b"data:") for line in response.iter_lines()), "events")
