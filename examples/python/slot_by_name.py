"""Calls without an HTTP client (gRPC, websockets), which hold a slot of a target.

The slot is requested by the name of the target. In this example, urllib takes the place of such a
library. The gate applies queues, caps and cool-downs, but does not retry.
"""

import json
import os
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import tidegate

gate = tidegate.Gate(targets={"bedrock": {"cap": 2, "url": "none"}})
url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1") + "/chat/completions"
headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"}


def converse(number: int) -> str:
    """Makes one call while it holds a slot, and returns the text of the answer.

    If the call fails, reports the HTTP status to the slot and raises the exception.
    """
    messages = [{"role": "user", "content": f"Question {number}"}]
    body = {"model": "gpt-4o-mini", "messages": messages, "max_completion_tokens": 4}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with gate.slot("bedrock") as slot:
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)["choices"][0]["message"]["content"]
        except urllib.error.HTTPError as error:
            slot.failed(error.code)
            raise


with ThreadPoolExecutor(8) as pool:
    answers = list(pool.map(converse, range(8)))
peak = gate.snapshot()["targets"]["bedrock"]["peak_in_flight"]
print(f"{len(answers)} answers, at most {peak} calls at once")
