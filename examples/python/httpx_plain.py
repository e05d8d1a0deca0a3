"""An httpx client of the gate, for any library that accepts one.

A call that the gate rejects gets an HTTP response instead of an exception.
"""

import os

import tidegate

gate = tidegate.Gate(defaults={"cap": 4})
base_url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
key = os.environ["OPENAI_API_KEY"]

with gate.httpx_client(headers={"authorization": f"Bearer {key}"}) as http:
    question = {"role": "user", "content": "When is high water?"}
    body = {"model": "gpt-4o-mini", "messages": [question], "max_completion_tokens": 8}
    response = http.post(f"{base_url}/chat/completions", json=body)
    response.raise_for_status()
    print(response.json()["choices"][0]["message"]["content"])
